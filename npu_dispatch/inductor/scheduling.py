"""From Inductor's groups of nodes to kernels that are one task each."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._inductor import config
from torch._inductor.codegen.common import KernelArgs
from torch._inductor.codegen.cpp import CppScheduling
from torch._inductor.scheduler import BaseSchedulerNode
from torch._inductor.utils import Placeholder, get_fused_kernel_name
from torch._inductor.virtualized import V

from npu_dispatch import _C
from npu_dispatch.inductor.entry import with_checked_division
from npu_dispatch.inductor.runtime import Parameter
from npu_dispatch.inductor.vectors import with_vectors


def _is_small(node: BaseSchedulerNode) -> bool:
    """Return whether the node's loops are known to be short: for one thread."""
    for part in node.get_nodes():
        _, (sizes, reduced) = part.group
        count = math.prod([*sizes, *reduced])
        if not isinstance(count, int) and not getattr(count, "is_Integer", False):
            return False
        if int(count) > _C.SMALL_LOOP:
            return False
    return True


class NpuScheduling(CppScheduling):
    """CppScheduling whose kernels are queued instead of called."""

    @contextlib.contextmanager
    def _written_as_for_cpu(self, node: BaseSchedulerNode) -> Iterator[None]:
        """Write code as for cpu, because for other devices Inductor chooses Triton.

        The task, not the text, says how many threads a parallel loop has.
        """
        threads: dict[str, Any] = {"cpp.dynamic_threads": True}
        if _is_small(node):
            threads = {"cpp.dynamic_threads": False, "cpp.threads": 1}
            # In a parallel region that is open, each thread would run these loops.
            self.kernel_group.ws.close()  # type: ignore[no-untyped-call]
        with config.patch(threads), V.graph.set_current_device(torch.device("cpu")):
            yield

    def codegen_node(self, node: Any) -> None:
        with self._written_as_for_cpu(node):
            super().codegen_node(node)

    def flush(self) -> None:
        # All are of one device, as the scheduler flushes when it comes to another.
        if nodes := self.kernel_group.scheduled_nodes:
            with V.graph.set_current_device(nodes[0].get_device()):
                super().flush()  # type: ignore[no-untyped-call]
        else:
            super().flush()  # type: ignore[no-untyped-call]

    def define_kernel(
        self, src_code: str, nodes: Sequence[Any], kernel_args: Any = None
    ) -> str:
        wrapper = V.graph.wrapper_code
        parameters = _parameters(kernel_args or self.kernel_group.args)
        device = nodes[0].get_device().index
        key = f"{device} {parameters!r} {src_code}"
        if key in wrapper.src_to_kernel:
            known: str = wrapper.src_to_kernel[key]
            return known
        fused = get_fused_kernel_name(nodes, "original_aten")
        name = f"npu_{fused}_{wrapper.next_kernel_suffix()}"
        wrapper.src_to_kernel[key] = name
        src_code = (
            src_code.replace(str(Placeholder.KERNEL_NAME), "kernel")
            .replace(str(Placeholder.DESCRIPTIVE_NAME), name)
            .replace("#pragma CMT", "//")
        )
        if any("truncdiv" in part._body.op_counts for part in nodes):
            src_code = with_checked_division(src_code)
        src_code = with_vectors(src_code)
        wrapper.define_kernel(
            name,
            f"npu_kernel({name!r}, {device}, {parameters!r}, r'''{src_code}''')",
            gpu=False,
        )
        return name


def _parameters(args: KernelArgs) -> list[Parameter]:
    """Return what the kernel does with each argument, and how large it is."""
    _, names, types = args.cpp_argdefs()
    found: list[Parameter] = []
    for outer, cpp_type in zip(names, types, strict=True):
        if not cpp_type.endswith("*"):
            kind = cpp_type.removeprefix("const ")
            found.append(("int" if kind == "int64_t" else kind, 8, None))
            continue
        if cpp_type.startswith("const "):
            kind = "r"
        else:
            kind = "rw" if outer in args.inplace_buffers else "w"
        found.append((kind, V.graph.get_dtype(outer).itemsize, _layout(outer)))
    return found


def _layout(name: str) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    buffer = V.graph.get_buffer(name)
    # A queued kernel would read host memory that may have another owner by then.
    device = buffer.get_device()
    assert device is not None and device.type == "npu", f"{name} is on {device}"
    sizes, strides = buffer.get_size(), buffer.get_stride()
    if all(getattr(n, "is_Integer", isinstance(n, int)) for n in [*sizes, *strides]):
        return tuple(map(int, sizes)), tuple(map(int, strides))
    return None
