"""Steps that make tensors, look at them otherwise, move them and compute.

An author returns a step's text, or None where no variable suits it.
"""

from __future__ import annotations

from tests.differential.context import Context, floating, integral
from tests.differential.tables import SEEDS

Step = str | None

UNARY = [
    "abs",
    "neg",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "log2",
    "log10",
    "sin",
    "cos",
    "tan",
    "tanh",
    "sinh",
    "cosh",
    "asin",
    "acos",
    "atan",
    "asinh",
    "atanh",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "sigmoid",
    "erf",
    "erfc",
    "erfinv",
    "floor",
    "ceil",
    "round",
    "trunc",
    "frac",
    "sign",
    "sgn",
    "square",
    "logit",
    "digamma",
    "lgamma",
    "i0",
    "deg2rad",
    "rad2deg",
    "bitwise_not",
    "logical_not",
    "nan_to_num",
    "conj_physical",
    "positive",
    "sinc",
]
PREDICATES = ["isnan", "isinf", "isfinite", "isposinf", "isneginf", "signbit", "isreal"]
ACTIVATIONS = [
    "relu",
    "gelu",
    "silu",
    "mish",
    "elu",
    "selu",
    "celu",
    "softplus",
    "hardswish",
    "hardsigmoid",
    "hardtanh",
    "leaky_relu",
    "logsigmoid",
    "softsign",
    "relu6",
    "tanhshrink",
    "hardshrink",
    "softshrink",
]
BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "maximum",
    "minimum",
    "pow",
    "fmod",
    "remainder",
    "atan2",
    "floor_divide",
    "true_divide",
    "hypot",
    "logaddexp",
    "fmax",
    "fmin",
    "copysign",
    "xlogy",
    "logaddexp2",
    "nextafter",
    "heaviside",
    "float_power",
    "ldexp",
]
COMPARE = [
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "logical_and",
    "logical_or",
    "logical_xor",
    "isclose",
]
BITS = ["bitwise_and", "bitwise_or", "bitwise_xor", "gcd", "lcm", "bitwise_left_shift"]


# Making.


def make(c: Context) -> Step:
    text = f"{c.new()} = {c.data(c.shape())}"
    if c.chance(4):
        rank = 4 if c.flag() else 5
        shape = [c.between(1, 4) for _ in range(rank)]
        last = "channels_last" if rank == 4 else "channels_last_3d"
        text = (
            f"{c.new()} = {c.data(shape, 'float32')}"
            f".contiguous(memory_format=torch.{last})"
        )
    return text


def make_leaf(c: Context) -> Step:
    kind = c.pick(["float32", "float32", "float64", "bfloat16", "complex64"])
    return f"{c.new()} = {c.data(c.shape(), kind)}.requires_grad_()"


def make_host(c: Context) -> Step:
    return f"h{c.below(3)} = host((), {c.kind()}, {c.below(SEEDS)})"


def factory(c: Context) -> Step:
    shape = c.shape()
    typed = f", dtype={c.kind()}" if c.flag() else ""
    n, m = c.below(7), c.below(7)
    text = c.pick(
        [
            f"torch.zeros({shape}{typed}, device=D)",
            f"torch.ones({shape}{typed}, device=D)",
            f"torch.full({shape}, {c.number()}{typed}, device=D)",
            f"torch.empty({shape}{typed}, device=D).fill_({c.number()})",
            f"torch.arange({n}{typed}, device=D)",
            f"torch.arange({n}, {n + m}, {c.pick(['1', '2', '0.5', '-1'])}, device=D)",
            f"torch.linspace(0, {n}, {m}{typed}, device=D)",
            f"torch.logspace(0, 1, {m}{typed}, device=D)",
            f"torch.eye({n}, {m}{typed}, device=D)",
            f"torch.tril_indices({n}, {m}, {c.between(-1, 1)}, device=D)",
            f"torch.triu_indices({n}, {m}, {c.between(-1, 1)}, device=D)",
            f"torch.tensor([[1, 2.5], [{n}, -1]]{typed}, device=D)",
            f"torch.scalar_tensor({c.number()}{typed}, device=D)",
            f"torch.hann_window({n}{typed}, device=D)",
            f"torch.complex(torch.ones({shape}, device=D), torch.zeros({shape}, device=D))",
            f"strided((2, 3), ({c.below(4)}, {c.below(4)}), {c.kind()})",
            f"strided((3,), ({c.below(4)},), {c.kind()})",
            f"torch.empty(({n}, 3, 2, 2), device=D, "
            "memory_format=torch.channels_last).zero_()",
        ]
    )
    return f"{c.new()} = {text}"


def factory_like(c: Context) -> Step:
    if (t := c.any()) is None:
        return None
    options = ""
    if c.chance(3):
        options += f", dtype={c.kind()}"
    if c.chance(3):
        options += f", memory_format={c.memory_format(t)}"
    shape = c.shape()
    text = c.pick(
        [
            f"torch.zeros_like({t}{options})",
            f"torch.ones_like({t}{options})",
            f"torch.full_like({t}, {c.number()}{options})",
            f"torch.empty_like({t}{options}).fill_(1)",
            f"{t}.new_zeros({shape})",
            f"{t}.new_full({shape}, {c.number()})",
            f"{t}.new_empty({shape}).fill_(2)",
            f"{t}.new_tensor([1, 2.5])",
        ]
    )
    return f"{c.new()} = {text}"


# Views.


def view(c: Context) -> Step:
    if (t := c.any()) is None:
        return None
    rank = c.rank(t)
    shape = tuple(c.of(t).shape)
    if rank == 0:
        return f"{c.new()} = {t}.{c.pick(['unsqueeze(0)', 'expand(3)', 'view(1, 1)'])}"
    d, e = c.dim(t), c.dim(t)
    start, stop = c.between(-3, 3), c.between(-1, 5)
    order = list(range(rank))
    for _ in range(2):
        i, j = c.below(rank), c.below(rank)
        order[i], order[j] = order[j], order[i]
    grown = (c.between(1, 3), *shape)
    opened = tuple(3 if n == 1 else n for n in shape)
    options = [
        f"{t}[1:]",
        f"{t}[:-1]",
        f"{t}[{start}]",
        f"{t}[{start}:{stop}]",
        f"{t}[::2]",
        f"{t}[..., 1:]",
        f"{t}[..., :-1]",
        f"{t}[..., ::2]",
        f"{t}[..., 0]",
        f"{t}[None]",
        f"{t}.transpose({d}, {e})",
        f"{t}.permute({order})",
        f"{t}.unsqueeze({d})",
        f"{t}.squeeze()",
        f"{t}.squeeze({d})",
        f"{t}.expand({opened})",
        f"{t}.expand({grown})",
        f"{t}.view(-1)",
        f"{t}.view({(*shape[:-1], 1, shape[-1])})",
        f"{t}.reshape(-1)",
        f"{t}.reshape({shape[::-1]})",
        f"{t}.flatten({c.below(2)})",
        f"{t}.diagonal({c.between(-1, 1)})",
        f"{t}.unfold({d}, 2, 1)",
        f"{t}.narrow({d}, {c.below(2)}, {c.below(3)})",
        f"{t}.detach()",
        f"{t}.mT",
        f"{t}.view_as({t})",
        f"{t}.movedim({d}, {e})",
        f"{t}.swapaxes({d}, {e})",
        f"{t}.unflatten(0, (1, -1))",
        f"torch.ops.aten.alias({t})",
        f"{t}.conj()",
        f"{t}.as_strided((2, 2), ({c.below(3)}, {c.below(3)}))",
        f"{t}.view({c.kind()})",
        f"torch.view_as_real({t})" if c.of(t).dtype.is_complex else f"{t}.real",
        f"{t}.imag" if c.of(t).dtype.is_complex else f"{t}.mH",
        f"{t}.select({d}, {start})",
        f"torch.atleast_2d({t})",
        f"{t}.broadcast_to({grown})",
    ]
    return f"{c.new()} = {c.pick(options)}"


def parts(c: Context) -> Step:
    if (t := c.any(lambda t: t.dim() > 0)) is None:
        return None
    d = c.dim(t)
    text = c.pick(
        [
            f"{t}.split({c.between(1, 3)}, {d})",
            f"{t}.chunk({c.between(1, 3)}, {d})",
            f"{t}.unbind({d})",
            f"{t}.tensor_split({c.between(1, 3)}, {d})",
            f"torch.split_with_sizes_copy({t}, [1, {t}.size({d}) - 1], {d})",
        ]
    )
    a, b = c.new(), f"t{c.below(9)}"
    return f"{a}, {b}, *_ = (*{text}, None)"


# Elements.


def unary(c: Context) -> Step:
    if (t := c.any()) is None:
        return None
    which = c.below(8)
    if which < 4:
        return f"{c.new()} = {t}.{c.pick(UNARY)}()"
    if which == 4:
        return f"{t}.{c.pick(UNARY)}_()"
    if which == 5:
        return f"{c.new()} = F.{c.pick(ACTIVATIONS)}({t})"
    if which == 6:
        return f"{c.new()} = torch.{c.pick(PREDICATES)}({t})"
    inplace = ["relu", "elu", "hardtanh", "leaky_relu", "silu", "hardswish", "mish"]
    return f"F.{c.pick(inplace)}({t}, inplace=True)"


def binary(c: Context) -> Step:
    if (t := c.any()) is None:
        return None
    other = c.operand(t)
    names = BINARY if c.below(6) else COMPARE + BITS
    name = c.pick(names)
    extra = ""
    if name in ("add", "sub") and c.chance(3):
        extra = f", alpha={c.number()}"
    if name == "div" and c.chance(2):
        extra = f", rounding_mode={c.pick(['None', repr('floor'), repr('trunc')])}"
    if c.below(5) < 3:
        return f"{c.new()} = torch.{name}({t}, {other}{extra})"
    return f"{t}.{name}_({other}{extra})"


def sugar(c: Context) -> Step:
    """Python's operators: also with the number on the left."""
    if (t := c.any()) is None:
        return None
    sign = c.pick(["+", "-", "*", "/", "//", "%", "**", "<", "==", "&", "|", "^"])
    other = c.operand(t)
    pair = f"{t} {sign} {other}" if c.below(3) else f"{c.number()} {sign} {t}"
    if c.chance(3) and sign not in ("<", "=="):
        return f"{t} {sign}= {other}"
    return f"{c.new()} = {pair}"


def ternary(c: Context) -> Step:
    if (t := c.any()) is None:
        return None
    u, v, n = c.like(t), c.like(t), c.number()
    text = c.pick(
        [
            f"torch.where({t} > 0, {u}, {v})",
            f"torch.where({t} > 0, {u}, {n})",
            f"torch.where({t} > 0, {n}, {u})",
            f"torch.addcmul({t}, {u}, {v}, value={n})",
            f"torch.addcdiv({t}, {u}, {v}, value={n})",
            f"torch.lerp({t}, {u}, {v})",
            f"torch.lerp({t}, {u}, 0.5)",
            f"torch.clamp({t}, {n}, 2)",
            f"torch.clamp({t}, {u}, {v})",
            f"torch.clamp({t}, min={u})",
            f"{t}.addcmul_({u}, {v})",
            f"{t}.addcdiv_({u}, {v}, value=2)",
            f"{t}.lerp_({u}, 0.25)",
            f"{t}.clamp_({n})",
            f"{t}.clamp_(max={u})",
            f"{t}.masked_fill_({u} > 0, {n})",
            f"{t}.masked_fill({u} > 0, torch.tensor(2, device=D))",
            f"F.threshold({t}, 0.5, {n})",
            f"torch.isin({t}, {u})",
        ]
    )
    return f"{c.new()} = {text}"


# Copies and layouts.


def copy(c: Context) -> Step:
    if (t := c.any()) is None:
        return None
    text = c.pick(
        [
            f"{t}.clone()",
            f"{t}.clone(memory_format={c.memory_format(t)})",
            f"{t}.contiguous()",
            f"{t}.contiguous(memory_format={c.memory_format(t)})",
            f"{t}.to({c.kind()})",
            f"{t}.to({c.kind()}, memory_format={c.memory_format(t)})",
            f"{t}.to(memory_format={c.memory_format(t)})",
            f"{t}.to({c.kind()}, copy=True)",
            f"{t}.type_as({c.any()})",
            f"{t}.to({c.any()})",
            f"{t}.copy_({c.like(t)})",
            f"{t}.copy_({c.like(t)}, non_blocking=True)",
            f"{t}.copy_(host({tuple(c.of(t).shape)}, {c.kind()}, 3))",
            f"{t}.to('cpu', copy=True).to(D, copy=True)",
            f"torch.empty_like({t}).copy_({t})",
            f"torch.ops.aten.lift_fresh_copy({t})",
            f"{t}.float()",
            f"{t}.double()",
            f"{t}.long()",
        ]
    )
    return f"{c.new()} = {text}"


def overwrite(c: Context) -> Step:
    if (t := c.any()) is None:
        return None
    return c.pick(
        [
            f"{t}.zero_()",
            f"{t}.fill_({c.number()})",
            f"{t}.fill_(torch.tensor({c.number()}, device=D))",
            f"{t}[1:] = {t}[:-1]",
            f"{t}[0] = {c.number()}",
            f"{t}[..., 0] = {c.number()}",
            f"{t}[1:].copy_({t}[:-1])",
            f"{t}[1:].add_({t}[:-1])",
            f"{t}[:-1].mul_({t}[1:])",
            f"{t}.copy_({t}.mT)",
            f"{t}.add_({t}.mT)",
            f"torch.add({t}[1:], {t}[:-1], out={t}[1:])",
            f"torch.mul({t}, 2, out={t})",
            f"{t}[{t} > 0] = {c.number()}",
            f"{t}[{t} > 0] *= 2",
            f"{t}.fill_diagonal_({c.number()})",
            f"{t}.expand(2, *{t}.shape).add_(1)",
            f"{t}.expand(2, *{t}.shape).copy_({t})",
            f"{t}.triu_()",
            f"{t}.t_()",
            f"{t}.transpose_(0, -1)",
            f"{t}.squeeze_()",
            f"{t}.unsqueeze_(0)",
            f"{t}.as_strided_((2, 2), (1, 1))",
        ]
    )


def storage(c: Context) -> Step:
    """Steps that give a tensor other memory, or its memory another shape."""
    if (t := c.any()) is None:
        return None
    u = c.any() or t
    shape = c.shape()
    return c.pick(
        [
            f"grown({t}, *{shape})",
            f"{t}.resize_({t}.shape)",
            f"{t}.mT.resize_({t}.mT.shape)",
            f"{t}.resize_(0)",
            f"grown({t}, *{shape}, memory_format={c.memory_format(t)})",
            f"{t}.set_({u})",
            f"{t}.set_()",
            f"{t}.set_({u}.untyped_storage(), 0, "
            f"({u}.untyped_storage().nbytes() // {t}.itemsize,))",
            f"{t}.data = {u}",
            f"{t}.data = {u}.clone()",
            f"{t}.data.add_(1)",
            f"{t}.detach().mul_(2)",
            f"{c.new()} = {t}",
            f"del {t}",
            f"grown({t}, *{tuple(c.of(u).shape)}).copy_({u})",
        ]
    )


def read(c: Context) -> Step:
    if (t := c.any()) is None:
        return None
    text = c.pick(
        [
            f"{t}.tolist()",
            f"{t}.sum().item()",
            f"bool({t}.any())",
            f"torch.equal({t}, {c.any()})",
            f"{t}.is_contiguous()",
            f"{t}.stride()",
            f"{t}.flatten()[0].item()",
            f"int({t}.flatten()[0])",
            f"{t}.nonzero().shape[0]",
            f"torch.allclose({t}, {t})",
            f"len({t})",
            f"{t}.shape == {c.any()}.shape",
            f"{t}.is_set_to({c.any()})",
            f"torch.result_type({t}, {c.any()})",
        ]
    )
    return f"{c.new()} = {text}"


__all__ = ["floating", "integral"]
