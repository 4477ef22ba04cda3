"""Elementwise functions compiled from C++ text at their first call.

The host's own compiler (CXX, or c++, g++ or clang++ of the PATH) compiles them for
each combination of dtypes, and the result is kept on disk. They run as tasks of the
stream.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from npu_dispatch import _C
from npu_dispatch.config import Config, cache_folder
from npu_dispatch.npu.runtime.devices import is_npu
from npu_dispatch.npu.runtime.start import _lazy_init
from npu_dispatch.observe.segment.untrusted_file import UnsafeFileError, own_folder

__all__: list[str] = []

_NO_OPMATH = ELEMENTWISE_TYPE_PROMOTION_KIND.NO_OPMATH
_MOST = 8  # tensors that go in, and that come out
_ENTRY = re.compile(
    r"template\s*<[^<>]*>\s*(?:[\w:]+\s+)+(\w+)\s*\([^{}]*\)\s*\{", re.S
)

_CPP = {
    torch.float32: "float",
    torch.float64: "double",
    torch.float16: "c10::Half",
    torch.bfloat16: "c10::BFloat16",
    torch.int8: "int8_t",
    torch.int16: "int16_t",
    torch.int32: "int32_t",
    torch.int64: "int64_t",
    torch.uint8: "uint8_t",
    torch.bool: "bool",
    torch.complex64: "std::complex<float>",
    torch.complex128: "std::complex<double>",
}
# As on CUDA, half types are computed in float; only results are rounded.
_COMPUTE = {**_CPP, torch.float16: "float", torch.bfloat16: "float"}
# For each type of a scalar: its kind in a task, and its type in C++.
_SCALARS = {
    float: ("double", "double"),
    int: ("int", "int64_t"),
    bool: ("int", "int64_t"),
}

# The words of a task: the tensors' addresses, results first; number of elements, number
# of dimensions, and their sizes; each tensor's strides in bytes; the scalars.
_SOURCE = """\
#include <algorithm>
#include <cmath>
#include <math.h>
#include <complex>
#include <cstdint>
#include <cstring>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

template <typename T> inline T min(T a, T b) {{ return b < a ? b : a; }}
template <typename T> inline T max(T a, T b) {{ return a < b ? b : a; }}

{code}

using T = {compute};
using Stored = {dtype};
constexpr int kTensors = {tensors};

template <typename U>
static U scalar(const uint64_t* words) {{
  U value;
  std::memcpy(&value, words, sizeof value);
  return value;
}}

extern "C" int npu_jit(const uint64_t* words, char*) {{
  const int64_t count = int64_t(words[kTensors]);
  const int64_t ndim = int64_t(words[kTensors + 1]);
  const uint64_t* sizes = words + kTensors + 2;
  const uint64_t* at = sizes + ndim;
  char* data[kTensors];
  const int64_t* strides[kTensors];
  for (int i = 0; i < kTensors; ++i) {{
    data[i] = reinterpret_cast<char*>(words[i]);
    strides[i] = reinterpret_cast<const int64_t*>(at);
    at += ndim;
  }}
  const uint64_t* scalars = at;
  (void)scalars;
{constants}
  int64_t index[{most_dims}] = {{}};
  for (int64_t n = 0; n < count; ++n) {{
    {call}
    for (int64_t d = ndim - 1; d >= 0; --d) {{
      const bool carry = ++index[d] == int64_t(sizes[d]);
      for (int i = 0; i < kTensors; ++i)
        data[i] += carry ? -strides[i][d] * (index[d] - 1) : strides[i][d];
      if (!carry) break;
      index[d] = 0;
    }}
  }}
  return 0;
}}
"""
# Each dimension that a task carries has two elements or more, and the number of all
# elements fits into 63 bits.
_MOST_DIMS = 63


def _compiler() -> str:
    chosen = Config.read().cxx
    for name in [chosen] if chosen else ["c++", "g++", "clang++"]:
        if found := shutil.which(name):
            return found
    raise RuntimeError(
        "jiterator needs a C++ compiler and found "
        + (f"no {chosen!r}, which CXX names" if chosen else "no c++, g++ or clang++")
        + "; install one, or set CXX to its path"
    )


def _compile(source: str, name: str) -> Path:
    """Return the library made from `source`; kept on disk from then on."""
    compiler = _compiler()
    include = Path(torch.__file__).parent / "include"
    flags = ["-O3", "-std=c++20", "-fPIC", "-shared", "-w", f"-I{include}"]
    key = "\0".join([source, compiler, torch.__version__, *flags])
    try:
        folder = own_folder(cache_folder() / "jiterator")
    except UnsafeFileError as error:
        raise RuntimeError(f"jiterator: {error}") from None
    library = folder / f"{hashlib.sha256(key.encode()).hexdigest()}.so"
    if library.exists():
        return library
    with tempfile.TemporaryDirectory(dir=folder) as work:
        text, made = Path(work) / "kernel.cpp", Path(work) / "kernel.so"
        text.write_text(source)
        command = [compiler, *flags, str(text), "-o", str(made)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise RuntimeError(f"jiterator: {name} did not compile:\n{result.stderr}")
        made.replace(library)  # so that other processes see all of it or nothing
    return library


class _Text(NamedTuple):
    """A template in C++, the name of its function, and how that returns results."""

    code: str
    name: str
    outputs: int
    by_reference: bool


@functools.cache
def _load(
    text: _Text, dtype: torch.dtype, inputs: int, scalars: tuple[type, ...]
) -> int:
    """Return the address of the compiled function."""
    code, name, outputs, by_reference = text
    constants = [
        f"  const {kind} k{i} = scalar<{kind}>(scalars + {i});"
        for i, kind in enumerate(_SCALARS[scalar][1] for scalar in scalars)
    ]
    values = [
        f"T(*reinterpret_cast<const Stored*>(data[{outputs + i}]))"
        for i in range(inputs)
    ]
    values += [f"k{i}" for i in range(len(scalars))]
    results = [f"r{i}" for i in range(outputs)]
    if by_reference:
        call = f"T {', '.join(results)}; {name}<T>({', '.join(values + results)});"
    else:
        call = f"const T r0 = {name}<T>({', '.join(values)});"
    for i, result in enumerate(results):
        call += f" *reinterpret_cast<Stored*>(data[{i}]) = Stored({result});"
    source = _SOURCE.format(
        code=code,
        compute=_COMPUTE[dtype],
        dtype=_CPP[dtype],
        tensors=inputs + outputs,
        constants="\n".join(constants),
        call=call,
        most_dims=_MOST_DIMS,
    )
    library = ctypes.CDLL(str(_compile(source, name)))
    address = ctypes.cast(library.npu_jit, ctypes.c_void_p).value
    assert address is not None
    return address


@functools.cache
def _kernel(
    name: str,
    entry: int,
    device: int,
    itemsize: int,
    outputs: int,
    inputs: int,
    dims: int,
    scalars: tuple[type, ...],
) -> Callable[..., None]:
    """Return what queues the compiled function for tensors of `dims` dimensions."""
    kinds = ["w"] * outputs + ["r"] * inputs
    kinds += ["int"] * (2 + dims * (1 + outputs + inputs))
    kinds += [_SCALARS[scalar][0] for scalar in scalars]
    parameters: list[Any] = [(kind, itemsize, (), (), False) for kind in kinds]
    return _C.word_kernel(f"jiterator::{name}", entry, device, parameters, True)


class _JittedFunction:
    def __init__(
        self, code: str, outputs: int, by_reference: bool, defaults: dict[str, Any]
    ) -> None:
        if not 1 <= outputs <= _MOST:
            raise AssertionError(f"jiterator supports 1 to 8 outputs, got {outputs}")
        entries = _ENTRY.findall(code)
        if not entries:
            raise RuntimeError(
                "Couldn't parse code: expected 'template <typename T> T name(T x, "
                f"...) {{ ... }}', got:\n{code}"
            )
        self.text = _Text(code, entries[-1], outputs, by_reference)
        self.defaults = defaults

    def _scalars(self, given: dict[str, Any]) -> list[Any]:
        for key in given:
            if key not in self.defaults:
                raise KeyError(f"{key} is not declared in function definition")
        values = list({**self.defaults, **given}.values())
        for value in values:
            if type(value) not in _SCALARS:
                raise TypeError(f"a scalar must be a number, but got {value!r}")
        return values

    def __call__(
        self, *tensors: torch.Tensor, **kwargs: Any
    ) -> torch.Tensor | tuple[torch.Tensor, ...]:
        if not _C.device_count():
            raise AssertionError("jiterator needs an npu device, and there is none")
        if not 1 <= len(tensors) <= _MOST:
            raise AssertionError(
                f"jiterator only supports 1 to 8 tensor inputs, got {len(tensors)}"
            )
        scalars = self._scalars(kwargs)
        device = next((t.device for t in tensors if is_npu(t)), None)
        if device is None:
            raise RuntimeError("jiterator: expected at least one npu tensor")
        for tensor in tensors:
            if tensor.device != device and tensor.dim():
                raise RuntimeError(
                    f"jiterator: expected all tensors on {device}, but one is on "
                    f"{tensor.device}"
                )
        _lazy_init()
        return self._launch(tensors, scalars, device)

    def _launch(
        self, tensors: Sequence[torch.Tensor], scalars: list[Any], device: torch.device
    ) -> torch.Tensor | tuple[torch.Tensor, ...]:
        # Tensors of no dimension count for less.
        dtype = elementwise_dtypes(*tensors, type_promotion_kind=_NO_OPMATH)[1]
        if dtype not in _CPP:
            raise RuntimeError(f"jiterator does not support {dtype}")
        kinds = tuple(type(value) for value in scalars)
        entry = _load(self.text, dtype, len(tensors), kinds)
        # Copies made here are freed when this returns, in stream order.
        inputs = [t.to(device, dtype).resolve_conj().resolve_neg() for t in tensors]
        expanded = torch.broadcast_tensors(*inputs)  # type: ignore[no-untyped-call]
        shape = expanded[0].shape
        made = [
            torch.empty(shape, dtype=dtype, device=device)
            for _ in range(self.text.outputs)
        ]
        if made[0].numel():
            dims = [dim for dim, size in enumerate(shape) if size > 1]
            numbers = [made[0].numel(), len(dims), *(shape[dim] for dim in dims)]
            for tensor in (*made, *expanded):
                strides = tensor.stride()
                numbers += [strides[dim] * dtype.itemsize for dim in dims]
            kernel = _kernel(
                self.text.name,
                entry,
                device.index,
                dtype.itemsize,
                len(made),
                len(inputs),
                len(dims),
                kinds,
            )
            kernel(*made, *inputs, *numbers, *scalars)
        return made[0] if len(made) == 1 else tuple(made)


def _create_jit_fn(code_string: str, **kwargs: Any) -> Callable[..., torch.Tensor]:
    """Return a function of npu tensors that runs `code_string` on each element.

    `code_string` is C++ whose last function is a template<typename T> that returns its
    result by value. `kwargs` are its trailing scalar parameters and their defaults; a
    call that names another raises KeyError. The function takes up to 8 tensors, which
    are broadcast and promoted to one type. T is that type, but float for float16 and
    bfloat16; a scalar is passed as a double or int64_t. Mirrors torch.cuda.jiterator.
    """
    return _JittedFunction(code_string, 1, False, kwargs)  # type: ignore[return-value]


def _create_multi_output_jit_fn(
    code_string: str, num_outputs: int, **kwargs: Any
) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Return a function like that of _create_jit_fn() with 1 to 8 results.

    The C++ function returns them through its last parameters, which are references.
    """
    return _JittedFunction(code_string, num_outputs, True, kwargs)  # type: ignore[return-value]
