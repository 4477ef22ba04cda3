"""The Python program that Inductor writes around its kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch._inductor import ir
from torch._inductor.codegen.wrapper import (
    PythonWrapperCodegen,
    SubgraphPythonWrapperCodegen,
)

from npu_dispatch.inductor import report

_IMPORT = "from npu_dispatch.inductor.runtime import empty_strided_npu, npu_kernel"


class _NpuCalls(PythonWrapperCodegen):
    """Writes calls of npu kernels, and npu memory, with the device's index in each.

    Inductor guards the current device only for the devices that it names, so
    nothing here may depend on it.
    """

    def _generate_kernel_call_helper(
        self,
        kernel_name: str,
        call_args: Any,
        *,
        device: torch.device | None = None,
        triton: bool = True,
        **kwargs: Any,
    ) -> None:
        if device is not None and device.type == "npu":
            # The kernel knows its device (scheduling.py).
            call = self.wrap_kernel_call(kernel_name, call_args)  # type: ignore[no-untyped-call]
            self.writeline(call)  # type: ignore[no-untyped-call]
            return
        super()._generate_kernel_call_helper(
            kernel_name, call_args, device=device, triton=triton, **kwargs
        )

    def generate_fallback_kernel(self, node: ir.FallbackKernel) -> None:
        report.note_operator(node)
        super().generate_fallback_kernel(node)

    def make_allocation(
        self,
        name: str,
        device: torch.device,
        dtype: torch.dtype,
        shape: Sequence[Any],
        stride: Sequence[Any],
        allocation_shape: Sequence[Any] | None = None,
        is_pinned: bool = False,
    ) -> str:
        if device.type != "npu":
            text: str = super().make_allocation(  # type: ignore[no-untyped-call]
                name, device, dtype, shape, stride, allocation_shape, is_pinned
            )
            return text
        taken_shape = shape if allocation_shape is None else allocation_shape
        wanted, taken, strides = map(
            self.codegen_python_shape_tuple, (shape, taken_shape, stride)
        )
        made = f"empty_strided_npu({taken}, {strides}, {dtype}, {device.index})"
        viewed = "" if taken == wanted else f".as_strided({wanted}, {strides})"
        return f"{name} = {made}{viewed}"


class NpuWrapper(_NpuCalls):
    @staticmethod
    def create(
        is_subgraph: bool,
        subgraph_name: str | None,
        parent_wrapper: PythonWrapperCodegen | None,
        partition_signatures: ir.GraphPartitionSignature | None = None,
    ) -> PythonWrapperCodegen:
        if not is_subgraph:
            return NpuWrapper()  # type: ignore[no-untyped-call]
        assert subgraph_name is not None and parent_wrapper is not None
        return NpuSubgraphWrapper(subgraph_name, parent_wrapper, partition_signatures)

    def write_header(self) -> None:
        super().write_header()
        self.imports.writeline(_IMPORT)


class NpuSubgraphWrapper(_NpuCalls, SubgraphPythonWrapperCodegen):
    """Writes a part of a graph into the program of the whole."""


class NoCppWrapper(PythonWrapperCodegen):
    """Refuses cpp_wrapper=True and AOTInductor, of which torch writes none for npu."""

    @staticmethod
    def create(*_args: Any, **_options: Any) -> NoReturn:
        """Say what else there is; without this class, Inductor fails an assertion."""
        raise NotImplementedError(
            "cpp_wrapper=True and AOTInductor (aoti_compile_and_package, aot_compile) "
            "were asked for C++ that calls 'npu': torch writes it for cpu, cuda, xpu "
            "and mps alone. On npu, torch.compile without cpp_wrapper works, with "
            "mode='reduce-overhead' its steps are replayed by C++, and what "
            "torch.export returned runs as program.module(); or compile for cpu."
        )
