"""What compiled programs call: kernels from C++ text, and memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from torch._inductor.async_compile import AsyncCompile, get_compile_threads
from torch._inductor.codecache import CppCodeCache, LambdaFuture
from torch._inductor.utils import clear_on_fresh_cache

from npu_dispatch import _C
from npu_dispatch.inductor.entry import with_entry

# An argument: its kind ("r", "w", "rw", "int", "float", "double"), the bytes of an
# element, and sizes and strides where they are the same at each call, else None.
Parameter = tuple[str, int, tuple[tuple[int, ...], tuple[int, ...]] | None]

# Only the entry is exported. Otherwise an inline variable of Inductor's header would
# exist once in the process, and one of them points into the kernel that runs.
_EXPORTS = Path(__file__).parent / "exports.map"

empty_strided_npu = _C.empty_strided


@clear_on_fresh_cache
class _KernelCache(CppCodeCache):
    """Libraries that need neither Python nor torch, by their text and flags."""

    cache: ClassVar[dict[str, Callable[[], Any]]] = {}  # type: ignore[misc]
    cache_clear = staticmethod(cache.clear)
    cpp_compile_command_flags: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        "include_pytorch": False,
        "shared": True,
    }

    @classmethod
    def _get_uncompiled_header(cls, device: str) -> str | None:
        return "torch/csrc/inductor/cpp_prefix.h"


def npu_kernel(
    name: str, device: int, parameters: Sequence[Parameter], source: str
) -> Any:
    """Return a future of a callable that queues the kernel of `source`.

    It is compiled as Inductor compiles for `cpu`, since vector instructions, -O3 and
    a precompiled header follow from that name.
    """
    described = [
        (kind, itemsize, *(layout or ((), ())), layout is not None)
        for kind, itemsize, layout in parameters
    ]
    source = with_entry(source)
    one_thread = "#pragma omp parallel" not in source

    def launcher(library: ctypes.CDLL) -> Any:
        entry = ctypes.cast(library.npu_entry, ctypes.c_void_p).value
        assert entry is not None
        return _C.word_kernel(name, entry, device, described, one_thread)

    flags = (f"-Wl,--version-script={_EXPORTS}",)
    if get_compile_threads() <= 1:
        return launcher(_KernelCache.load(source, extra_flags=flags))
    library = _KernelCache.load_async(
        source, submit_fn=AsyncCompile.submit, extra_flags=flags
    )
    return LambdaFuture(lambda: launcher(library()))
