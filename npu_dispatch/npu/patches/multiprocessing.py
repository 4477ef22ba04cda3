"""How multiprocessing sends tensors and storages of the device."""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions

from npu_dispatch.npu.runtime.codes import coded

__all__: list[str] = []


def serve() -> None:
    """Let npu tensors be sent to other processes, and say that they can be."""
    module: Any = reductions
    tensor_on_host, storage_on_host = module.reduce_tensor, module.reduce_storage

    def reduce_tensor(tensor: torch.Tensor) -> tuple[Any, ...]:
        strided = tensor.layout == torch.strided and not tensor.is_nested
        if tensor.device.type != "npu" or not strided:
            return tensor_on_host(tensor)  # type: ignore[no-any-return]
        from npu_dispatch.npu.memory import shared

        return shared.reduce_tensor(tensor)

    def reduce_storage(storage: torch.UntypedStorage) -> tuple[Any, ...]:
        if storage.device.type != "npu":
            return storage_on_host(storage)  # type: ignore[no-any-return]
        raise coded(
            RuntimeError,
            "Cannot pickle npu storage; try pickling an npu tensor instead",
        )

    module.reduce_tensor = reduce_tensor  # also for the parts of a sparse tensor
    module.reduce_storage = reduce_storage
    ForkingPickler.register(torch.Tensor, reduce_tensor)
    ForkingPickler.register(torch.nn.Parameter, reduce_tensor)
    ForkingPickler.register(torch.UntypedStorage, reduce_storage)

    storage: Any = torch.UntypedStorage
    shared_on_host = storage.is_shared

    def is_shared(self: torch.UntypedStorage) -> bool:
        """Return whether other processes can see it; npu storages they always can."""
        return self.device.type == "npu" or shared_on_host(self)

    storage.is_shared = is_shared
