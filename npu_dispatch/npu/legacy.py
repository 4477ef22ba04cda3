"""The old typed tensors and storages: torch.npu.FloatTensor and the like."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch.storage import _LegacyStorage, _warn_typed_storage_removal

from npu_dispatch import _C
from npu_dispatch.npu.runtime.devices import is_npu
from npu_dispatch.npu.runtime.start import _lazy_init

_TYPES = {
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Long": torch.int64,
    "Int": torch.int32,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
}

# As in torch.cuda, there are no tensor types of these.
_STORED = {
    **_TYPES,
    "ComplexDouble": torch.complex128,
    "ComplexFloat": torch.complex64,
}

__all__ = [f"{name}Storage" for name in _STORED] + [f"{name}Tensor" for name in _TYPES]


class _NpuStorage(_LegacyStorage):
    """A typed storage on the current npu. Use torch.UntypedStorage instead."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        _lazy_init()
        return super().__new__(cls, *args, **kwargs)  # type: ignore[no-untyped-call]

    @classmethod
    def from_buffer(cls, *args: Any, **kwargs: Any) -> NoReturn:
        _warn_typed_storage_removal()  # type: ignore[no-untyped-call]
        raise RuntimeError("from_buffer: Not available for NPU storage")

    @classmethod
    def _new_with_weak_ptr(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError("_new_with_weak_ptr: Not available for NPU storage")

    @classmethod
    def _new_shared_filename(
        cls, manager: Any, obj: Any, size: Any, *, device: Any = None, dtype: Any = None
    ) -> NoReturn:
        raise RuntimeError("_new_shared_filename: Not available for NPU storage")


class _TensorType(type):
    dtype: torch.dtype
    _warned = False

    def __instancecheck__(cls, instance: object) -> bool:
        return (
            isinstance(instance, torch.Tensor)
            and is_npu(instance)
            and instance.dtype == cls.dtype
        )

    def __call__(cls, *args: Any, device: Any = None) -> torch.Tensor:
        if not _C.device_count():
            raise TypeError(
                f"type {cls.__qualname__} not available: there is no npu device"
            )
        if not _TensorType._warned:
            _TensorType._warned = True
            warnings.warn(
                f"torch.npu.{cls.__qualname__} is deprecated: use torch.tensor(..., "
                f"dtype={cls.dtype}, device='npu')",
                stacklevel=2,
            )
        _lazy_init()
        where = torch.device("npu" if device is None else device)
        if not args:
            return torch.empty(0, dtype=cls.dtype, device=where)
        if all(isinstance(size, int) for size in args):
            return torch.empty(args, dtype=cls.dtype, device=where)
        if len(args) != 1:
            raise TypeError(f"expected sizes or one sequence, but got {args!r}")
        if isinstance(args[0], torch.Size):
            return torch.empty(args[0], dtype=cls.dtype, device=where)
        return torch.as_tensor(args[0], dtype=cls.dtype).to(where, copy=True)


def _storage(name: str, dtype: torch.dtype) -> type:
    return type(
        f"{name}Storage",
        (_NpuStorage,),
        {
            "__module__": "torch.npu",
            "__doc__": f"A storage of {dtype} on an npu; deprecated with TypedStorage.",
            "dtype": dtype,
            "_dtype": dtype,
        },
    )


def _tensor(name: str, dtype: torch.dtype) -> type:
    # Tensor.type(T) looks at a class's C name, which is the one it is made with.
    return _TensorType(
        f"torch.npu.{name}Tensor",
        (),
        {
            "__module__": "torch.npu",
            "__qualname__": f"{name}Tensor",
            "__doc__": f"The type of {dtype} tensors on an npu, for isinstance(). "
            "Called with sizes, a sequence or an array it makes one; deprecated.",
            "dtype": dtype,
        },
    )


if TYPE_CHECKING:
    BFloat16Storage: type[Any]
    BoolStorage: type[Any]
    ByteStorage: type[Any]
    CharStorage: type[Any]
    ComplexDoubleStorage: type[Any]
    ComplexFloatStorage: type[Any]
    DoubleStorage: type[Any]
    FloatStorage: type[Any]
    HalfStorage: type[Any]
    IntStorage: type[Any]
    LongStorage: type[Any]
    ShortStorage: type[Any]
    BFloat16Tensor: type[Any]
    BoolTensor: type[Any]
    ByteTensor: type[Any]
    CharTensor: type[Any]
    DoubleTensor: type[Any]
    FloatTensor: type[Any]
    HalfTensor: type[Any]
    IntTensor: type[Any]
    LongTensor: type[Any]
    ShortTensor: type[Any]


for _name, _dtype in _STORED.items():
    globals()[f"{_name}Storage"] = _storage(_name, _dtype)
for _name, _dtype in _TYPES.items():
    globals()[f"{_name}Tensor"] = _tensor(_name, _dtype)
