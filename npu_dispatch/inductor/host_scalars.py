"""Host scalars in a graph: each is copied to the device before a kernel reads it."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx
from torch._inductor.codecache import torch_key
from torch._inductor.cpu_vec_isa import pick_vec_isa
from torch._inductor.custom_graph_pass import CustomGraphModulePass
from torch.utils import _pytree as pytree

_COPY = torch.ops.prims.device_put.default
_ARE_COPIES = {_COPY, torch.ops.aten._to_copy.default}


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


def _device_of(node: fx.Node) -> torch.device | None:
    """Return the npu device that the node computes on, if it does."""
    devices = (t.device for t in _tensors(node.meta.get("val")))
    return next((d for d in devices if d.type == "npu"), None)


def _may_be_fused(target: Any) -> bool:
    """Return whether the call may become part of a kernel.

    Operators of other libraries are called as in eager code, and read scalars then.
    """
    of_torch = {"aten", "prims"}
    return isinstance(target, torch._ops.OpOverload) and target.namespace in of_torch


def _host_scalars(node: fx.Node) -> Iterator[fx.Node]:
    for argument in node.all_input_nodes:
        value = argument.meta.get("val")
        if isinstance(value, Tensor) and value.device.type == "cpu" and not value.dim():
            yield argument


class MoveHostScalars(CustomGraphModulePass):
    """Puts a copy before each npu call that reads a 0-d cpu tensor.

    Eager operators read such a scalar while they are launched. A fused kernel would
    keep its address, and the memory may be free by the time it runs. Besides, where
    the scalar is the first argument, Inductor would run the kernel on the host.
    """

    def __call__(self, gm: fx.GraphModule) -> None:
        moved: dict[tuple[fx.Node, torch.device], fx.Node] = {}
        for node in gm.graph.nodes:
            if node.op != "call_function" or node.target in _ARE_COPIES:
                continue
            device = _device_of(node)
            if device is None or not _may_be_fused(node.target):
                continue
            for scalar in list(_host_scalars(node)):
                if (scalar, device) not in moved:
                    moved[scalar, device] = self._move(gm.graph, scalar, device)
                node.replace_input_with(scalar, moved[scalar, device])

    @staticmethod
    def _move(graph: fx.Graph, scalar: fx.Node, device: torch.device) -> fx.Node:
        with graph.inserting_after(scalar):
            copy = graph.call_function(_COPY, (scalar, device))
        copy.meta["val"] = scalar.meta["val"].to(device)
        return copy

    def uuid(self) -> Any:
        """Return what compiled graphs depend on beside the graph itself."""
        isa, threads = str(pick_vec_isa()), torch.get_num_threads()
        return _own_code(), torch_key(), isa, threads


@functools.cache
def _own_code() -> str:
    """Return a hash of this package's files, which write the kernels' code."""
    folder = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.is_file():
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
