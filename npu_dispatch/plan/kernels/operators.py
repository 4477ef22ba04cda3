"""Names of operators and types, and how much work a call of an operator is."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from npu_dispatch.plan.kernels.calls import Shape

__all__ = [
    "UNTOLD",
    "amount",
    "dtype_name",
    "identity",
    "is_floating",
    "writes_argument",
]

# As a trace names C++ types, and as c10 names scalar types, in small letters.
_DTYPES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "long int": "int64",
    "long": "int64",
    "int": "int32",
    "short int": "int16",
    "short": "int16",
    "signed char": "int8",
    "char": "int8",
    "unsigned char": "uint8",
    "byte": "uint8",
    "complex<float>": "complex64",
    "complexfloat": "complex64",
    "complex<double>": "complex128",
    "complexdouble": "complex128",
}

# Operators that have another name on other devices. The number says how many of
# their first tensors are compared: the others are a library's own.
_FAMILIES = {
    "cudnn_batch_norm": ("native_batch_norm", 3),
    "cudnn_batch_norm_backward": ("native_batch_norm_backward", 3),
    "native_batch_norm": ("native_batch_norm", 3),
    "native_batch_norm_backward": ("native_batch_norm_backward", 3),
    "convolution_overrideable": ("convolution", None),
    "convolution_backward_overrideable": ("convolution_backward", None),
}
_ATTENTION = "_scaled_dot_product_"

# Their indices decide the time, and no trace has the shapes of those.
UNTOLD = {"index", "index_put", "_index_put_impl"}

# Where the first of the two factors of a matrix product is.
_PRODUCTS = {
    "mm": 0,
    "bmm": 0,
    "addmm": 1,
    "addbmm": 1,
    "baddbmm": 1,
    "_addmm_activation": 1,
}


def _split(operator: str) -> tuple[str, str]:
    """Return "add" and "Tensor" of "aten::add.Tensor"."""
    base, _, overload = operator.rpartition("::")[2].partition(".")
    return base, overload


def _in_place(base: str) -> bool:
    return base.endswith("_") and not base.endswith("__")


def writes_argument(operator: str) -> bool:
    """Return whether its result is one of its arguments."""
    base, overload = _split(operator)
    return _in_place(base) or "out" in overload


def identity(operator: str) -> tuple[str, int | None]:
    """Return "add" of "aten::add_.Tensor", and how many tensors are compared."""
    base, _ = _split(operator)
    if _in_place(base):
        base = base[:-1]
    if base.startswith(_ATTENTION) and "attention" in base:
        if base.endswith("_backward"):
            return f"{_ATTENTION}attention_backward", 4
        return f"{_ATTENTION}attention", 3
    return _FAMILIES.get(base, (base, None))


def dtype_name(name: str) -> str:
    """Return "float32" of "float", "torch.float32" or "Float"."""
    small = name.rpartition("::")[2].removeprefix("torch.").lower()
    return _DTYPES.get(small, small)


def is_floating(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


def amount(name: str, shapes: Sequence[Shape]) -> int:
    """Return a number that the time of large calls is proportional to.

    It is the number of multiplications of matrix products, of convolutions without
    strides and of attention; of other operators, that of elements.
    """
    counted = 0
    if name in _PRODUCTS:
        counted = _product(shapes[_PRODUCTS[name] :])
    elif name in ("convolution", "convolution_backward"):
        counted = _convolution(shapes[:: 2 if name.endswith("_backward") else 1])
    elif name.startswith(_ATTENTION):
        counted = _attention(shapes[1 if name.endswith("_backward") else 0 :])
    return counted or sum(prod(shape) for shape in shapes)


def _product(shapes: Sequence[Shape]) -> int:
    return prod(shapes[0]) * shapes[1][-1] if len(shapes) > 1 else 0


def _convolution(shapes: Sequence[Shape]) -> int:
    """Of the input, or the gradient of the output, and the weight."""
    if len(shapes) < 2 or len(shapes[0]) < 3:
        return 0
    places, weight = shapes[:2]
    return prod(places) * prod(weight) // max(places[1], 1)


def _attention(shapes: Sequence[Shape]) -> int:
    """Of query and key."""
    if len(shapes) < 2 or len(shapes[1]) < 2:
        return 0
    return prod(shapes[0]) * shapes[1][-2]
