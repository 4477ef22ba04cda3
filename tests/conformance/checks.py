"""The comparisons made with one operator of OpInfo.

Each call is made on `cpu` and on the device with equal arguments. Whatever
cpu's call does, the device's must do: results (values, shapes, dtypes, on the
device), what becomes of the arguments, and the kind of error.
"""

import itertools
import math
import random
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

from tests.conformance.calls import (
    CPU,
    NAMES,
    Call,
    Done,
    NothingToCompareError,
    attempt,
    lay_out,
    seed_device,
    tensors_in,
)
from tests.conformance.compare import (
    MismatchError,
    ValueMismatchError,
    agrees_with_itself,
    compare,
    compare_aliases,
    compare_memory,
    compare_strides,
    is_a_tie,
    is_nearer,
    is_rounding,
)
from tests.conformance.wrong import same_error, wrong_samples

VARIANTS = (
    "fwd", "inplace", "out", "bwd", "again", "noncontig", "layouts", "wrong_calls",
)  # fmt: skip

# Their results are memory that nobody has written.
UNWRITTEN = {
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty",
    "new_empty_strided", "resize_", "resize_as_",
}  # fmt: skip
# With out= they leave a part of it unwritten on cpu, too.
UNWRITTEN_OUT = {"fft.ihfft2", "fft.ihfftn"}
# What they take besides their input are numbers of the host.
HOST_ARGUMENTS = {"tensor_split"}
# Of so many first samples some are taken, others with another seed.
WINDOW = 8


@dataclass(frozen=True)
class Options:
    """What to check, and how."""

    device: str = "npu"
    dtypes: tuple[str, ...] = ("float32",)
    backward_dtypes: tuple[str, ...] = ("float32",)
    layout_dtypes: tuple[str, ...] = ("float32",)
    variants: tuple[str, ...] = VARIANTS
    samples: int = 3
    # Samples with larger tensors are left out.
    max_numel: int = 2_000_000
    seed: int = 0
    # Strides of all variants, too, and calls in place that would have to
    # broadcast.
    strict: bool = False


@dataclass
class Record:
    """What became of the comparisons of one operator in one dtype.

    `raises` counts calls that fail alike on both; `skip` those that leave
    nothing to compare.
    """

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def add(self, variant: str, outcome: str, text: str = "") -> None:
        self.counts.setdefault(variant, Counter())[outcome] += 1
        if text and len(self.errors) < 12:
            self.errors.append(f"[{variant}] {text[:600]}")

    def as_json(self) -> dict[str, Any]:
        return {**{k: dict(v) for k, v in self.counts.items()}, "errors": self.errors}


# Operators raise whatever they like.
CALL_ERRORS = (Exception,)


class Checker:
    """Checks operators in this process."""

    def __init__(
        self, options: Options, first_calls: Callable[[], int] = lambda: 0
    ) -> None:
        self.options = options
        self.device = torch.device(options.device)
        # How many calls the device has taken for ones that were not made before.
        self.first_calls = first_calls
        # Told to whoever wonders where this process hangs or has died.
        self.progress: Callable[[str], None] = lambda text: None

    def operator(self, op: OpInfo) -> dict[str, Any]:
        start = time.perf_counter()
        dtypes = {}
        for name in self.options.dtypes:
            dtype = getattr(torch, name)
            if dtype in op.dtypes:
                dtypes[name] = self._dtype(op, dtype).as_json()
        if "wrong_calls" in self.options.variants:
            dtypes["any"] = self._wrong_calls(op).as_json()
        seconds = round(time.perf_counter() - start, 3)
        return {"name": op.full_name, "dtypes": dtypes, "seconds": seconds}

    def _dtype(self, op: OpInfo, dtype: torch.dtype) -> Record:
        record = Record()
        name = str(dtype).removeprefix("torch.")
        wanted = set(self.options.variants)
        differentiable = op.supports_autograd and name in self.options.backward_dtypes
        plain = wanted & {"fwd", "inplace", "out", "noncontig"}
        layouts = "layouts" in wanted and name in self.options.layout_dtypes
        again = "again" in wanted and name in self.options.layout_dtypes
        if plain or (layouts and not differentiable):
            for sample in self._samples(op, dtype, False, record):
                self._forms(op, sample, plain, name, record)
                if layouts and not differentiable:
                    self._layouts(op, sample, name, record, backward=False)
        if differentiable and (layouts or "bwd" in wanted):
            for sample in self._samples(op, dtype, True, record):
                if "bwd" in wanted:
                    self.progress(f"{name} bwd")
                    call = self._call(op, sample, backward="")
                    done = self._agree(op, call, "bwd", record)
                    if done is not None and again:
                        self._again(op, call, done, record)
                if layouts:
                    self._layouts(op, sample, name, record, backward=True)
        return record

    def _wrong_calls(self, op: OpInfo) -> Record:
        """Check calls that cpu refuses, after right ones of the same kinds."""
        record = Record()
        dtypes = [getattr(torch, name) for name in self.options.dtypes]
        dtypes = [d for d in dtypes if d in op.dtypes]
        chosen = zlib.crc32(f"{self.options.seed} {op.full_name}".encode())
        right = []
        if dtypes:
            dtype = dtypes[chosen % len(dtypes)]
            right = self._samples(op, dtype, False, record)
        for sample in right * 2:
            for call in self._forms_of(op, sample, right):
                attempt(call, self.device)
        _wait(self.device)
        for wrong in wrong_samples(op, right):
            self.progress(f"wrong calls: {' '.join(wrong.summary().split())[:300]}")
            for call in self._forms_of(op, wrong, right):
                self._agree(op, call, "wrong_calls", record)
        return record

    def _forms_of(
        self, op: OpInfo, sample: SampleInput, right: list[SampleInput]
    ) -> Iterator[Call]:
        """Yield a call in the operator's forms, with out= as of a right sample."""
        yield self._call(op, sample)
        if (in_place := op.get_inplace()) and isinstance(sample.input, Tensor):
            yield self._call(op, sample, function=in_place)
        if op.supports_out and op.name not in UNWRITTEN_OUT | UNWRITTEN and right:
            done, _ = attempt(self._call(op, right[0]), CPU)
            results = tensors_in(done.result) if done else []
            if results and all(t.layout == torch.strided for t in results):
                yield self._call(op, sample, out=[_poisoned(t) for t in results])

    def _samples(
        self, op: OpInfo, dtype: torch.dtype, requires_grad: bool, record: Record
    ) -> list[SampleInput]:
        """Return some of the first samples, which ones and their numbers by seed."""
        key = f"{self.options.seed} {op.full_name} {dtype} {requires_grad}"
        number = zlib.crc32(key.encode())
        seed_device(CPU, number)
        random.seed(number)
        np.random.seed(number)
        try:
            made = op.sample_inputs(
                "cpu", dtype, requires_grad=requires_grad, set_seed=False
            )
            first = list(itertools.islice(filter(self._is_small, made), WINDOW))
        except Exception as error:
            record.add("samples", "skip", f"{type(error).__name__}: {error}")
            return []
        if len(first) <= self.options.samples:
            return first
        places = random.Random(number).sample(range(len(first)), self.options.samples)
        return [first[i] for i in sorted(places)]

    def _is_small(self, sample: SampleInput) -> bool:
        parts = tensors_in([sample.input, sample.args, sample.kwargs])
        return all(t.numel() <= self.options.max_numel for t in parts)

    def _call(self, op: OpInfo, sample: SampleInput, **more: Any) -> Call:
        more.setdefault("function", op)
        return Call(sample=sample, host_arguments=op.name in HOST_ARGUMENTS, **more)

    def _forms(
        self,
        op: OpInfo,
        sample: SampleInput,
        wanted: set[str],
        dtype: str,
        record: Record,
    ) -> None:
        plain = None
        again = self.options.layout_dtypes if "again" in self.options.variants else ()
        if wanted & {"fwd", "out"}:
            self.progress(f"{dtype} fwd")
            call = self._call(op, sample)
            plain = self._agree(op, call, "fwd", record)
            if plain is not None and dtype in again:
                self._again(op, call, plain, record)
        if "noncontig" in wanted:
            self.progress(f"{dtype} noncontig")
            self._noncontiguous(op, sample, record)
        in_place = op.get_inplace()
        if (
            "inplace" in wanted
            and in_place
            and isinstance(sample.input, Tensor)
            and (self.options.strict or not sample.broadcasts_input)
        ):
            self.progress(f"{dtype} inplace")
            call = self._call(op, sample, function=in_place)
            self._agree(op, call, "inplace", record)
        supported = op.supports_out and op.name not in UNWRITTEN_OUT
        if "out" in wanted and plain is not None and supported:
            self.progress(f"{dtype} out")
            results = tensors_in(plain.result)
            if results and all(t.layout == torch.strided for t in results):
                out = [_poisoned(t) for t in results]
                self._agree(op, self._call(op, sample, out=out), "out", record)

    def _noncontiguous(self, op: OpInfo, sample: SampleInput, record: Record) -> None:
        try:
            moved = sample.noncontiguous()
        except (RuntimeError, NotImplementedError):  # sparse ones have no strides
            record.add("noncontig", "skip")
        else:
            self._agree(op, self._call(op, moved), "noncontig", record)

    def _layouts(
        self,
        op: OpInfo,
        sample: SampleInput,
        dtype: str,
        record: Record,
        backward: bool,
    ) -> None:
        rng = random.Random(self.options.seed)
        for layout in NAMES[:-1]:
            self.progress(f"{dtype} layouts, inputs {layout}")
            moved = sample.transform(
                lambda x, how=layout: (
                    lay_out(x, how, rng) if isinstance(x, Tensor) else x
                )
            )
            incoming = rng.choice(("", *NAMES)) if backward else None
            call = self._call(op, moved, backward=incoming)
            note = (
                f"inputs {layout}, gradients {incoming}: "
                if backward
                else f"inputs {layout}: "
            )
            self._agree(op, call, "layouts", record, note)
        for layout in NAMES if backward else ():
            self.progress(f"{dtype} layouts, gradients {layout}")
            call = self._call(op, sample, backward=layout)
            self._agree(op, call, "layouts", record, f"gradients {layout}: ")

    def _agree(
        self, op: OpInfo, call: Call, variant: str, record: Record, note: str = ""
    ) -> Done | None:
        """Make a call on both devices and compare; return cpu's."""
        expected, raised = attempt(call, CPU)
        if isinstance(raised, NothingToCompareError):
            record.add(variant, "skip")
            return None
        got, failure = attempt(call, self.device)
        late = _wait(self.device)
        failure = failure or late
        if raised is not None:
            wrong = same_error(op.full_name, call, raised, failure)
            text = f"{note}{wrong} of {_told(call)}" if wrong else ""
            record.add(variant, "fail" if wrong else "raises", text)
            return None
        assert expected is not None
        self._judge(op, call, got, failure, expected, variant, record, note)
        return expected

    def _again(self, op: OpInfo, call: Call, expected: Done, record: Record) -> None:
        """Make a call a third time: it is found again, and gives the same.

        What a generated wrapper encodes is compared so with what the operator's
        schema says, by which the first call was noted. (A second call may still
        learn about the operator.)
        """
        attempt(call, self.device)
        before = self.first_calls()
        got, failure = attempt(call, self.device)
        new = self.first_calls() - before
        failure = failure or _wait(self.device)
        if new and failure is None:
            failure = MismatchError(f"not found again: {new} of its launches")
        self._judge(op, call, got, failure, expected, "again", record, "")

    def _judge(
        self,
        op: OpInfo,
        call: Call,
        got: Done | None,
        failure: Exception | None,
        expected: Done,
        variant: str,
        record: Record,
        note: str,
    ) -> None:
        """Note what became of a call of the device that works on cpu."""
        try:
            if isinstance(failure, MismatchError):
                raise failure
            if failure is not None:
                raise MismatchError(f"{type(failure).__name__}: {failure}")
            assert got is not None
            self._compare(got, expected, op.name not in UNWRITTEN)
            if self.options.strict or variant == "layouts":
                _compare_strides(got, expected)
        except MismatchError as error:
            if not agrees_with_itself(call, expected):
                record.add(variant, "skip")
            elif isinstance(error, ValueMismatchError) and (
                is_rounding(call, got, expected)
                or is_a_tie(call, got, expected)
                or is_nearer(call, got, expected)
            ):
                record.add(variant, "pass")
            else:
                record.add(variant, "fail", f"{note}{error} of {_told(call)}")
        else:
            record.add(variant, "pass")

    def _compare(self, got: Done, expected: Done, values: bool) -> None:
        # Raw results may differ by phases and signs, but in nothing else.
        compare(got.result, expected.result, values=False)
        compare(got.processed, expected.processed, values=values)
        compare(got.gradients, expected.gradients, at="gradient")
        compare(got.out, expected.out, values=False, at="out")
        if (got.result is got.input) != (expected.result is expected.input):
            raise MismatchError("result: whether it is the input itself")
        mine = [got.result, got.gradients, got.out]
        if got.copies.tensors() or _names_device(got.kwargs):
            for i, tensor in enumerate(tensors_in(mine)):
                if tensor.device.type != self.device.type:
                    raise MismatchError(
                        f"tensor {i} of the results lies on {tensor.device}"
                    )
        if values:
            memory = expected.copies.memory()
            compare_memory(got.copies.memory(), memory, expected.copies.dtypes())
        compare_aliases(
            got.result,
            got.copies.tensors() + got.out,
            expected.result,
            expected.copies.tensors() + expected.out,
        )


def _compare_strides(got: Done, expected: Done) -> None:
    compare_strides(
        [got.result, got.gradients, got.out],
        [expected.result, expected.gradients, expected.out],
    )


def _wait(device: torch.device) -> Exception | None:
    """Wait until all is computed; return what failed meanwhile, and forget it."""
    try:
        torch.accelerator.synchronize(device)
    except Exception as error:
        torch.get_device_module(device).reset_device()
        return error
    return None


def _names_device(kwargs: dict[str, Any]) -> bool:
    return kwargs.get("device") is not None


def _poisoned(like: Tensor) -> Tensor:
    """Return a tensor for out= laid out as cpu's result, of values to be noticed."""
    out = torch.empty_strided(like.size(), like.stride(), dtype=like.dtype)
    floating = like.is_floating_point() or like.is_complex()
    return out.fill_(math.nan if floating else 1)


def _told(call: Call) -> str:
    """Return the sample in words, in one line."""
    return " ".join(call.sample.summary().split())[:300]
