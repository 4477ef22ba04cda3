"""Steps that make tensors, look at them otherwise, move them and compute.

An author returns a step's text, or None where no variable suits it.
"""

import functools
from collections.abc import Callable

import torch

from tests.differential.context import NAME_OF, Context, Test, floating
from tests.differential.tables import SEEDS

Step = str | None
Author = Callable[[Context], Step]
Options = Callable[[Context, str], list[str]]


def author(
    test: Test | None = None, *, assigns: bool = True
) -> Callable[[Options], Author]:
    """Make an author of a function that lists what may be done with a tensor.

    `test`: which tensors it is for. `assigns`: the result becomes a variable.
    """

    def decorate(options: Options) -> Author:
        @functools.wraps(options)
        def write(c: Context) -> Step:
            if (t := c.any(test)) is None:
                return None
            text = c.pick(options(c, t))
            return f"{c.new()} = {text}" if assigns else text

        return write

    return decorate


UNARY = [
    "abs", "neg", "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sin", "cos",
    "tan", "tanh", "sinh", "cosh", "asin", "acos", "atan", "asinh", "atanh", "sqrt",
    "rsqrt", "reciprocal", "sigmoid", "erf", "erfc", "erfinv", "floor", "ceil", "round",
    "trunc", "frac", "sign", "sgn", "square", "logit", "digamma", "lgamma", "i0",
    "deg2rad", "rad2deg", "bitwise_not", "logical_not", "nan_to_num", "conj_physical",
    "positive", "sinc",
]  # fmt: skip
PREDICATES = ["isnan", "isinf", "isfinite", "isposinf", "isneginf", "signbit", "isreal"]
ACTIVATIONS = [
    "relu", "gelu", "silu", "mish", "elu", "selu", "celu", "softplus", "hardswish",
    "hardsigmoid", "hardtanh", "leaky_relu", "logsigmoid", "softsign", "relu6",
    "tanhshrink", "hardshrink", "softshrink",
]  # fmt: skip
BINARY = [
    "add", "sub", "mul", "div", "maximum", "minimum", "pow", "fmod", "remainder",
    "atan2", "floor_divide", "true_divide", "hypot", "logaddexp", "fmax", "fmin",
    "copysign", "xlogy", "logaddexp2", "nextafter", "heaviside", "float_power", "ldexp",
]  # fmt: skip
COMPARE = [
    "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor",
    "isclose",
]  # fmt: skip
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


@author()
def factory_like(c: Context, t: str) -> list[str]:
    options = ""
    if c.chance(3):
        options += f", dtype={c.kind()}"
    if c.chance(3):
        options += f", memory_format={c.memory_format(t)}"
    shape = c.shape()
    return [
        f"torch.zeros_like({t}{options})",
        f"torch.ones_like({t}{options})",
        f"torch.full_like({t}, {c.number()}{options})",
        f"torch.empty_like({t}{options}).fill_(1)",
        f"{t}.new_zeros({shape})",
        f"{t}.new_full({shape}, {c.number()})",
        f"{t}.new_empty({shape}).fill_(2)",
        f"{t}.new_tensor([1, 2.5])",
    ]


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


@author()
def ternary(c: Context, t: str) -> list[str]:
    u, v, n = c.like(t), c.like(t), c.number()
    return [
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


# Copies and layouts.


@author()
def copy(c: Context, t: str) -> list[str]:
    return [
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


@author(assigns=False)
def overwrite(c: Context, t: str) -> list[str]:
    return [
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


@author(assigns=False)
def storage(c: Context, t: str) -> list[str]:
    """Steps that give a tensor other memory, or its memory another shape."""
    u = c.any() or t
    shape = c.shape()
    return [
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


@author()
def read(c: Context, t: str) -> list[str]:
    return [
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


# Reductions, products, indices, layers, lists, gradients.

REDUCE = [
    "sum", "mean", "amax", "amin", "prod", "any", "all", "var", "std", "argmax",
    "argmin", "nansum", "logsumexp", "count_nonzero", "norm", "median",
]  # fmt: skip
# Not median: cpu's leaves its result as it was where all strides are 0.
ALONG = [
    "cumsum", "cumprod", "softmax", "log_softmax", "logcumsumexp", "sort", "argsort",
    "cummax", "max", "min", "mode", "flip", "glu",
]  # fmt: skip


def reduce(c: Context) -> Step:
    if (t := c.any()) is None:
        return None
    which = c.below(4)
    if which == 0:
        return f"{c.new()} = {t}.{c.pick(REDUCE)}()"
    d = c.dim(t)
    if which == 1:
        name = c.pick(
            ["sum", "mean", "amax", "amin", "any", "var", "argmax", "logsumexp"]
        )
        return f"{c.new()} = {t}.{name}({d}, keepdim={c.flag()})"
    if which == 2:
        return f"{c.new()} = {t}.{c.pick(ALONG)}({d})"
    text = c.pick(
        [
            f"{t}.sum(({d}, 0))",
            f"{t}.sum({d}, dtype={c.kind()})",
            f"{t}.mean({d}, dtype=float64)",
            f"{t}.topk({c.between(0, 2)}, {d})",
            f"{t}.kthvalue({c.between(1, 2)}, {d})",
            f"{t}.norm({c.number()}, {d})",
            f"torch.linalg.vector_norm({t}, {c.number()}, {d})",
            f"torch.var_mean({t}, {d})",
            f"torch.aminmax({t}, dim={d})",
            f"torch.diff({t}, dim={d})",
            f"torch.unique({t})",
            f"torch.unique({t}, return_counts=True, return_inverse=True)",
            f"torch.bincount({t}.flatten().long().abs())",
            f"torch.histc({t}.float(), 4, -2, 2)",
            f"F.softmax({t}, {d}, dtype=float32)",
            f"F.normalize({t}, dim={d})",
            f"torch.renorm({t}, 2, {d}, 1)",
            f"{t}.cumsum_({d})",
            f"torch.trapezoid({t}, dim={d})",
            f"torch.searchsorted({t}.flatten().sort().values, {t})",
            f"torch.bucketize({t}, torch.tensor([-1., 0., 1.], device=D))",
        ]
    )
    return f"{c.new()} = {text}"


@author(lambda t: t.dim() > 0)
def multiply(c: Context, t: str) -> list[str]:
    shape = tuple(c.of(t).shape)
    kind = NAME_OF.get(c.of(t).dtype, "float32")
    if c.chance(10):
        kind = c.kind()
    n = c.between(1, 4)
    if len(shape) == 1:
        return [
            f"torch.dot({t}, {c.data(shape, kind)})",
            f"torch.outer({t}, {c.data((n,), kind)})",
            f"{t} @ {c.data((shape[0], n), kind)}",
            f"torch.mv({c.data((n, shape[0]), kind)}, {t})",
            f"F.linear({t}, {c.data((n, shape[0]), kind)})",
        ]
    k = shape[-1]
    right = c.data((k, n), kind)
    if c.flag():
        right = f"{c.data((n, k), kind)}.t()"
    return [
        f"{t} @ {right}",
        f"torch.matmul({t}, {right})",
        f"{t} @ {t}.mT",
        f"F.linear({t}, {c.data((n, k), kind)}, {c.data((n,), kind)})",
        f"F.linear({t}, {c.data((n, k), kind)})",
        f"torch.mm({t}, {right})",
        f"torch.addmm({c.data((n,), kind)}, {t}, {right}, beta={c.number()})",
        f"torch.addmm({c.number()}, {t}, {right})",
        f"torch.bmm({t}, {t}.mT)",
        f"torch.baddbmm({c.number()}, {t}, {t}.mT)",
        f"{t}.addmm_({t}, {t}.mT)",
        f"{t} @ {c.data((k,), kind)}",
        f"torch.einsum('...i,...j->...ij', {t}, {t})",
        f"torch.einsum('...ij->...ji', {t})",
        f"torch.einsum('...i,...i->...', {t}, {t})",
        f"torch.tensordot({t}, {right}, 1)",
        f"torch.linalg.multi_dot([{t}, {t}.mT])",
        f"torch.kron({t}, {t})",
        f"torch.cdist({t}, {t})",
    ]


@author(lambda t: t.dim() > 0)
def index(c: Context, t: str) -> list[str]:
    d = c.dim(t)
    shape = list(c.of(t).shape)
    size = shape[d] if -len(shape) <= d < len(shape) else 1
    n = c.between(0, 3)
    line = c.indices(size, (n,))
    block_shape = list(shape)
    if -len(shape) <= d < len(shape):
        block_shape[d] = n
    block = c.indices(size, block_shape)
    kind = NAME_OF.get(c.of(t).dtype, "float32")
    source = c.data(block_shape, kind)
    first = c.indices(shape[0], (n,))
    rows = c.data((n, *shape[1:]), kind)
    return [
        f"{t}.index_select({d}, {line})",
        f"{t}.gather({d}, {block})",
        f"{t}.scatter({d}, {block}, {source})",
        f"{t}.scatter_({d}, {block}, {c.number()})",
        f"{t}.scatter_add_({d}, {block}, {source})",
        f"{t}.scatter_reduce({d}, {block}, {source}, 'amax')",
        f"{t}[{first}]",
        f"{t}[{first}, ...]",
        f"{t}[..., {c.indices(shape[-1], (n,))}]",
        f"{t}.index_put_(({first},), {rows})",
        f"{t}.index_put_(({first},), {rows}, accumulate=True)",
        f"{t}.index_add_({d}, {line}, {source})",
        f"{t}.index_copy_({d}, {line}, {source})",
        f"{t}.index_fill_({d}, {line}, {c.number()})",
        f"{t}.take({c.indices(c.of(t).numel(), (n,))})",
        f"{t}[{t} > 0]",
        f"{t}.masked_select({t} > 0)",
        f"{t}.nonzero()",
        f"torch.argwhere({t})",
        f"{t}.masked_scatter_({t} > 0, {t}.flatten())",
        f"torch.take_along_dim({t}, {block}, {d})",
        f"{t}[[0]]",
        f"{t}[torch.tensor([0])]",
        f"F.embedding({first}, {t})",
        f"F.one_hot({first}, {max(shape[0], 1)})",
        f"F.embedding_bag({first}, {t}, torch.tensor([0], device=D))",
        f"{t}.put_({c.indices(c.of(t).numel(), (n,))}, {c.data((n,), kind)})",
        f"torch.repeat_interleave({t}, 2, {d})",
    ]


@author()
def join(c: Context, t: str) -> list[str]:
    d = c.dim(t)
    return [
        f"torch.cat([{t}, {t}], {d})",
        f"torch.cat([{t}, {c.like(t)}], {d})",
        f"torch.stack([{t}, {t}.clone()], {d})",
        f"torch.stack([{t}, {c.like(t)}], {d})",
        f"torch.hstack([{t}, {c.like(t)}])",
        f"torch.block_diag({t}, {t})",
        f"torch.flip({t}, [{d}])",
        f"torch.roll({t}, {c.between(-2, 2)}, {d})",
        f"torch.rot90({t})",
        f"torch.tril({t}, {c.between(-1, 1)})",
        f"torch.triu({t}, {c.between(-1, 1)})",
        f"torch.diag_embed({t})",
        f"{t}.repeat(2, *[1] * {t}.dim())",
        f"{t}.tile(2)",
        f"F.pad({t}, ({c.between(-1, 2)}, {c.between(0, 2)}))",
        f"F.pad({t}, (1, 1), mode='reflect')",
        f"torch.meshgrid({t}, {t}, indexing='ij')",
        f"torch.cartesian_prod({t}, {t})",
        f"torch.broadcast_tensors({t}, {c.like(t)})[0]",
        f"torch.trace({t})",
        f"torch.vander({t}, 3)",
    ]


def layer(c: Context) -> Step:
    if (t := c.any(lambda t: floating(t) and t.dim() > 1)) is None:
        return None
    shape = tuple(c.of(t).shape)
    kind = NAME_OF.get(c.of(t).dtype, "float32")
    rank, k, ch = len(shape), shape[-1], shape[1]
    last = c.data((k,), kind)
    channel = c.data((ch,), kind)
    options = [
        f"F.layer_norm({t}, ({k},))",
        f"F.layer_norm({t}, ({k},), {last}, {last})",
        f"F.layer_norm({t}, {shape[1:]})",
        f"F.rms_norm({t}, ({k},))",
        f"F.rms_norm({t}, ({k},), {last})",
        f"F.batch_norm({t}, None, None, training=True)",
        f"F.batch_norm({t}, {channel}, {channel}.abs(), {channel}, {channel})",
        f"F.group_norm({t}, 1, {channel}, {channel})",
        f"F.instance_norm({t})",
        # Copied: behind their mean lies what cpu took it of.
        f"F.mse_loss({t}, {c.like(t)}).clone()",
        f"F.l1_loss({t}, {c.like(t)}, reduction='none')",
        f"F.smooth_l1_loss({t}, {c.like(t)}).clone()",
        f"F.binary_cross_entropy_with_logits({t}, {t}.sigmoid())",
        f"F.kl_div({t}.log_softmax(-1), {t}.softmax(-1), reduction='sum')",
        f"F.cross_entropy({t}, {c.indices(ch, (shape[0], *shape[2:]))})",
        f"F.cross_entropy({t}, {t}.softmax(1), label_smoothing=0.1)",
        f"F.nll_loss({t}.log_softmax(1), {c.indices(ch, (shape[0], *shape[2:]))})",
        f"F.cosine_similarity({t}, {c.like(t)})",
        f"F.dropout({t}, 0.0)",
        f"F.gelu({t}, approximate='tanh')",
        f"F.prelu({t}, {channel})",
        f"F.huber_loss({t}, {c.like(t)})",
        f"F.scaled_dot_product_attention({t}, {t}, {t})",
        f"F.scaled_dot_product_attention({t}, {t}, {t}, is_causal=True)",
    ]
    if rank == 4:
        n = c.between(1, 3)
        weight = c.data((n, ch, c.between(1, 2), 1), kind)
        options += [
            f"F.conv2d({t}, {weight})",
            f"F.conv2d({t}, {weight}, {c.data((n,), kind)}, padding=1)",
            f"F.max_pool2d({t}, 1)",
            f"F.max_pool2d({t}, 2, 1, padding=1)",
            f"F.avg_pool2d({t}, 2, ceil_mode=True)",
            f"F.adaptive_avg_pool2d({t}, {c.between(1, 3)})",
            f"F.interpolate({t}, scale_factor=2)",
            f"F.interpolate({t}, size=(3, 3), mode='bilinear')",
            f"F.unfold({t}, 1)",
            f"F.pixel_shuffle({t}, 1)",
            f"F.conv_transpose2d({t}, {c.data((ch, n, 2, 2), kind)})",
        ] * 2
    if rank == 3:
        options += [
            f"F.conv1d({t}, {c.data((2, ch, 1), kind)})",
            f"F.avg_pool1d({t}, 1)",
            f"F.max_pool1d({t}, 1)",
            f"F.adaptive_max_pool1d({t}, 1)",
            f"F.interpolate({t}, scale_factor=2, mode='linear')",
        ] * 2
    return f"{c.new()} = {c.pick(options)}"


def foreach(c: Context) -> Step:
    if (t := c.any()) is None:
        return None
    hosts = [n for n in c.names if n[0] == "h" and n[1:].isdigit()]
    others = [t, c.any() or t]
    if hosts and c.chance(3):
        others.append(c.pick(hosts))
    if c.chance(3):
        others.append(c.data(c.shape()))
    tensors = f"[{', '.join(others)}]"
    clones = f"[{', '.join(f'{n}.clone()' for n in others)}]"
    numbers = f"[{', '.join(c.number() for _ in others)}]"
    name = c.pick(["add", "mul", "sub", "div", "maximum", "clamp_min", "pow"])
    single = c.pick(["exp", "sqrt", "abs", "neg", "reciprocal", "sigmoid", "zero"])
    host_number = f"torch.tensor({c.number()})"
    options = [
        f"torch._foreach_{name}_({tensors}, {c.number()})",
        f"torch._foreach_{name}_({tensors}, {numbers})",
        f"torch._foreach_{name}_({tensors}, {clones})",
        f"torch._foreach_mul_({tensors}, {host_number})",
        f"torch._foreach_add_({tensors}, {host_number}, alpha=2)",
        f"torch._foreach_{single}_({tensors})",
        f"torch._foreach_copy_({tensors}, {clones})",
        f"torch._foreach_lerp_({tensors}, {clones}, 0.5)",
        f"torch._foreach_addcmul_({tensors}, {clones}, {clones}, 0.5)",
        f"torch._foreach_addcdiv_({tensors}, {clones}, {clones}, {numbers})",
        f"{c.new()} = torch._foreach_{name}({tensors}, {c.number()})",
        f"{c.new()} = torch._foreach_{name}({tensors}, {clones})",
        f"{c.new()} = torch._foreach_{name}({tensors}, {numbers})",
        f"{c.new()} = torch._foreach_norm({tensors})",
        f"{c.new()} = torch._foreach_exp({tensors})",
        f"torch.nn.utils.clip_grad_norm_([{t}], 1.0)",
        f"torch._foreach_zero_({tensors})",
        f"torch._foreach_add_({tensors}, {tensors})",
    ]
    return c.pick(options)


def differentiate(c: Context) -> Step:
    result = c.any(lambda t: t.requires_grad and t.grad_fn is not None)
    leaf = c.any(lambda t: t.requires_grad and t.is_leaf)
    if result is None:
        t = c.any(floating)
        return None if t is None else f"{t}.requires_grad_({c.below(4) > 0})"
    if leaf is None:
        leaf = result
    shape = tuple(c.of(result).shape)
    kind = NAME_OF.get(c.of(result).dtype, "float32")
    gradient = c.data(shape, kind)
    if len(shape) > 1:
        gradient = c.pick(
            [
                gradient,
                f"{c.data(shape[::-1], kind)}.permute({list(range(len(shape)))[::-1]})",
                f"{c.data(shape[-1:], kind)}.expand({shape})",
                f"{c.data((), kind)}.expand({shape})",
                f"{c.data((*shape[:-1], 2 * shape[-1]), kind)}[..., ::2]"
                if shape[-1]
                else gradient,
                f"{c.data((*shape[2:], *shape[:2]), kind)}"
                f".movedim(({len(shape) - 2}, {len(shape) - 1}), (0, 1))",
            ]
        )
    extra = c.pick(["", ", retain_graph=True", ", create_graph=True"])
    return c.pick(
        [
            f"{result}.backward({gradient}{extra})",
            f"{result}.backward({gradient}{extra})",
            f"{result}.sum().backward({extra[2:]})",
            f"{result}.sum().backward({extra[2:]})",
            f"{c.new()} = torch.autograd.grad({result}, {leaf}, {gradient}{extra}, "
            "allow_unused=True)[0]",
            f"{c.new()} = torch.autograd.grad({result}.sum(), {leaf}{extra}, "
            "allow_unused=True)[0]",
            f"{leaf}.grad = None",
            f"{result}.retain_grad()",
            f"{result}.register_hook(lambda g: g * 2)",
            f"{result}.requires_grad_(False)",
            f"{result}.detach_()",
            f"torch.optim.SGD([{leaf}], lr=0.1, momentum=0.5, foreach=True).step()",
            f"torch.optim.AdamW([{leaf}], lr=0.1, foreach=True).step()",
            f"torch.optim.Adam([{leaf}], lr=torch.tensor(0.1), foreach=True).step()",
            f"torch.optim.AdamW([{leaf}], lr=0.1, fused=True).step()",
            f"torch.optim.SGD([{leaf}], lr=0.1, fused=True).step()",
        ]
    )


def switch(c: Context) -> Step:
    if c.chance(3):
        return "pop()"
    if c.chance(3):
        return f"push(default_dtype({c.pick(['float64', 'float16', 'bfloat16'])}))"
    context = c.pick(
        [
            "torch.no_grad()",
            "torch.no_grad()",
            "torch.enable_grad()",
            "torch.inference_mode()",
            "torch.inference_mode(False)",
            "default_dtype(float64)",
            "default_dtype(float64)",
            "default_dtype(float16)",
            "default_dtype(bfloat16)",
            "deterministic()",
            "deterministic(fill=False)",
            "torch.backends.mkldnn.flags(enabled=False)",
            "torch.autograd.set_multithreading_enabled(False)",
            "torch.autograd.graph.save_on_cpu()",
            "torch.autograd.set_grad_enabled(False)",
            "torch.autograd.forward_ad.dual_level()",
            "torch.autograd._force_original_view_tracking(True)",
        ]
    )
    return f"push({context})"


def elsewhere(c: Context, step: str) -> str:
    """Put a step on another stream, or into another thread."""
    how = c.pick(["'event'", "'stream'", "'synchronize'"])
    if "with " in step or "in_thread" in step:
        return step
    if c.below(3):
        return f"with on({c.below(3)}, {how}): {step}"
    if c.flag():
        return f"in_thread({c.below(2)}, {step!r})"
    return f"in_thread({c.below(2)}, {f'with on({c.below(3)}, {how}): {step}'!r})"


def nest(c: Context) -> Step:
    """Code that runs in the middle of other code."""
    t = c.any()
    if t is None or c.chance(4):
        return f"litter({c.between(1, 6)})"
    formulas = [
        "x + 1", "x * x", "(x * 2).sum()", "torch.cat([x, x])", "x.exp()", "x[1:] + 1",
        "x.softmax(-1)", "x.clone().add_(1)", "x.t() @ x", "x.view(2, 3)", "x.cumsum(0)",
    ]  # fmt: skip
    return c.pick(
        [
            f"h9 = finalizer(lambda: {t}.add_(1))",
            "del h9",
            "h9 = None",
            f"{c.new()} = at_once({t}, {c.pick(formulas)!r}, {c.pick(formulas)!r})",
            f"h8 = finalizer(lambda t={t}: t.mul_(2))",
            "del h8",
        ]
    )


def _begins_inside(t: torch.Tensor) -> bool:
    return t.storage_offset() * t.itemsize <= t.untyped_storage().nbytes()


@author()
def written_out(c: Context, t: str) -> list[str]:
    """Operators with out=: of the right shape, of another, overlapping."""
    # Not one that begins behind the end of its storage: what lies between is not
    # zeroed where it grows.
    out = c.any(_begins_inside) or "torch.empty(0, device=D)"
    if c.flag():
        shape = tuple(c.of(t).shape)
        out = f"torch.ones({shape}, device=D, dtype={NAME_OF.get(c.of(t).dtype, 'float32')})"
    if c.chance(4):
        out = "torch.empty(0, device=D)"
    # Not tril: cpu's writes past an out= with gaps.
    return [
        f"torch.add({t}, {c.operand(t)}, out={out})",
        f"torch.mul({t}, {c.operand(t)}, out={out})",
        f"torch.exp({t}, out={out})",
        f"torch.sum({t}, 0, out={out})",
        f"torch.cat([{t}, {c.like(t)}], out={out})",
        f"torch.where({t} > 0, {t}, {c.like(t)}, out={out})",
        f"torch.softmax({t}, 0, out={out})",
        f"torch.gt({t}, 0, out={out})",
        f"torch.stack([{t}, {t}], out={out})",
        f"torch.cumsum({t}, 0, out={out})",
        f"torch.matmul({t}, {t}, out={out})",
        f"torch.arange(5, out={out})",
        f"torch.index_select({t}, 0, {c.indices(2, (2,))}, out={out})",
        f"torch.clamp({t}, 0, 1, out={out})",
    ]
