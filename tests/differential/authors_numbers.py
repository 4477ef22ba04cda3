"""Steps on numbers and sizes that kernels treat in another way, or refuse.

Numbers at the ends of a dtype's range and random ones; large tensors; calls of which
one size is wrong by one. A kernel that finds such a mistake finds it after the call;
cpu finds it in the call. What a device remembers of a right call must not let a wrong
one pass, so that most of these steps make a call several times.
"""

from tests.differential.authors import Step
from tests.differential.context import NAME_OF, Context
from tests.differential.tables import DTYPES, ENDS

SHAPES = [(17,), (3, 7), (1,), (64,), (5, 33)]
# Kernels for which each element alone decides what comes of it.
FLOATING = [
    "abs", "neg", "sqrt", "rsqrt", "reciprocal", "exp", "expm1", "log", "log1p", "log2",
    "sin", "cos", "tanh", "sinh", "atan", "sigmoid", "erf", "floor", "ceil", "round",
    "trunc", "frac", "sign", "square", "isfinite", "isnan", "isinf", "signbit",
    "nan_to_num", "logit", "asinh", "acosh", "lgamma", "digamma", "i0", "positive",
]  # fmt: skip
INTEGRAL = ["abs", "neg", "sign", "bitwise_not", "square", "logical_not", "positive"]
PAIRS = ["add", "sub", "mul", "maximum", "minimum", "eq", "lt", "ge", "ne"]
FLOATING_PAIRS = ["div", "pow", "fmod", "remainder", "atan2", "hypot", "nextafter"]
FLOATING_PAIRS += ["copysign", "logaddexp", "fmax", "fmin", "xlogy", "heaviside"]
# Beyond what a dtype can hold, or at its end.
NUMBERS = ["1e300", "-1e40", "2**31", "2**63 - 1", "-2**63", "70000.0", "1e-320", "300"]
NUMBERS += ["float('inf')", "float('nan')", "-128", "256", "65504.0", "2**53 + 1"]


def ends(c: Context) -> Step:
    """Numbers from which a wrong way, through another dtype or order, shows."""
    x = c.own("x")
    new = f"x{c.below(3)}"
    if x is None or c.chance(3):
        shape, kind = c.pick(SHAPES), c.pick([*ENDS, "int64", "int64"])
        x = f"ends({shape}, {kind}, {c.below(9)})"
        if c.chance(4):
            return f"{new} = {x}"
    else:
        shape, kind = tuple(c.of(x).shape), NAME_OF[c.of(x).dtype]
    is_real = DTYPES[kind].is_floating_point
    same = f"ends({shape}, {kind}, {c.below(9)})"
    number = c.pick(NUMBERS)
    others = [n for n in ENDS if n.startswith(("float", "bfloat")) or not is_real]
    options = [
        f"{x}.{c.pick(FLOATING if is_real else INTEGRAL)}()",
        f"{x}.{c.pick(FLOATING if is_real else INTEGRAL)}()",
        *[f"torch.{c.pick(PAIRS)}({x}, {same})"] * 4,
        *[f"torch.{c.pick(PAIRS)}({x}, {number})"] * 4,
        f"torch.{c.pick(PAIRS)}({x}, torch.tensor({number}))",
        f"{x} * {number}",
        f"{x} > {number}",
        f"{x}.to({c.pick(others)})",
        f"{x}.clone()",
        f"{x}.sort(-1)",
        f"{x}.sort(-1, descending=True, stable=True).indices",
        f"{x}.amax(-1)",
        f"{x}.amin(0)",
        f"{x}.sum(-1)",
        f"{x}.prod(-1)",
        f"{x}.cumsum(-1)",
        f"{x}.argmax()",
        f"{x}.unique()",
        f"torch.clamp({x}, {number}, 7)",
        f"torch.where({x} > 0, {x}, {number})",
        f"torch.cat([{x}, {same}])",
        f"torch.full((3,), {number}, dtype={kind}, device=D)",
        f"{x}.fill_({number})",
        f"{x}.masked_fill({x} > 0, {number})",
        f"{x}.add_({same})",
        f"{x}.copy_({same}.flip(0))",
        f"{x}.tolist()",
        f"{x}.flatten()[{c.below(3) - 1}].item()",
        f"torch.isclose({x}, {same})",
        f"torch.addcmul({x}, {x}, {same}, value={c.pick(['2', '-1'])})",
        f"{x}.to('cpu', copy=True).to(D, copy=True)",
        f"{x}.topk(1, -1)",
        f"torch.tensor([{number}, 1], dtype={kind}, device=D)",
        f"torch.searchsorted({x}.flatten().sort().values, {same})",
    ]
    if is_real:
        options += [
            f"torch.{c.pick(FLOATING_PAIRS)}({x}, {same})",
            f"torch.{c.pick(FLOATING_PAIRS)}({x}, {number})",
            f"{x}.softmax(-1)",
            f"{x}.log_softmax(-1)",
            f"{x}.logsumexp(-1)",
            f"F.{c.pick(['relu', 'gelu', 'silu', 'softplus', 'elu', 'mish'])}({x})",
            f"{x}.norm(2, -1)",
            f"{x}.var(-1)",
            f"torch.frexp({x})",
            f"torch.lerp({x}, {same}, 0.25)",
            f"torch.ldexp({x}, torch.tensor(40, device=D))",
            f"{x}.view({'int32' if kind == 'float32' else 'uint8'})",
            f"F.layer_norm({x}, {shape[-1:]})",
        ]
    return f"{new} = {c.pick(options)}"


def draw(c: Context) -> Step:
    """Random numbers, of which each device has its own."""
    n = c.pick([1, 7, 1000, 5000, 70000])
    kind = c.pick(["float32", "float64", "float16"])
    empty = f"torch.empty(({n},), dtype={kind}, device=D)"
    third = f"torch.full(({n},), 0.25, device=D)"
    weights = "torch.tensor([1., 1., 2.], device=D)"
    # Each with its mean and its deviation.
    text, mean, deviation, takes_generator = c.pick(
        [
            (f"torch.rand(({n},), dtype={kind}, device=D, generator=g)", 0.5, 0.29, 1),
            (f"torch.randn(({n},), dtype={kind}, device=D, generator=g)", 0, 1, 1),
            (f"torch.randint(0, 11, ({n},), device=D, generator=g)", 5, 3.17, 1),
            (f"torch.randperm({n}, device=D, generator=g)", (n - 1) / 2, 1, 1),
            (f"{empty}.uniform_(-1, 1, generator=g)", 0, 0.58, 1),
            (f"{empty}.normal_(3, 2, generator=g)", 3, 2, 1),
            (f"{empty}.exponential_(2, generator=g)", 0.5, 0.5, 1),
            (f"{empty}.bernoulli_(0.25, generator=g)", 0.25, 0.44, 1),
            (f"{empty}.random_(0, 5, generator=g)", 2, 1.5, 1),
            (f"torch.bernoulli({third}, generator=g)", 0.25, 0.44, 1),
            (f"torch.poisson({third} * 8, generator=g)", 2, 1.5, 1),
            (f"torch.normal({third}, {third}, generator=g)", 0.25, 0.25, 1),
            (f"torch.multinomial({weights}, {n}, True, generator=g)", 1.25, 0.83, 1),
            (f"torch.rand_like({third})", 0.5, 0.29, 0),
            (f"torch.randn_like({third})", 0, 1, 0),
            (f"F.dropout({third}, 0.5)", 0.25, 0.25, 0),
            (f"F.dropout({third}, 0.25, inplace=True)", 0.25, 0.15, 0),
            (f"F.rrelu(-{third}, training=True)", -0.058, 0.02, 0),
            (f"F.gumbel_softmax({third}.view(-1, 1))", 1, 0.01, 0),
        ]
    )
    own = ", own=True" if takes_generator and c.flag() else ""
    drawn = f"drawn({c.below(50)}, lambda g: {text}, {mean}, {deviation}{own})"
    if c.below(3):
        return f"{c.new()} = {drawn}"
    t = c.any() or weights
    return f"{c.new()} = " + c.pick(
        [
            f"torch.multinomial({weights}, {c.between(3, 5)}).sort().values",
            f"torch.multinomial(torch.ones(2, {n}, device=D), {n} + {c.below(2)})"
            ".sort().values",
            f"torch.bernoulli({t} > 0)",
            "torch.normal(0., -1., (3,), device=D)",
            "torch.randint(5, 5, (3,), device=D)",
            f"{t}.clone().uniform_(1, 0)",
            "torch.randperm(3, device=D).sort().values",
            f"F.dropout({t}, 1.5)",
        ]
    )


LINALG = [
    "linalg.eigh", "linalg.eigvalsh", "linalg.svdvals", "linalg.inv", "linalg.cholesky",
    "linalg.det", "linalg.slogdet", "linalg.qr", "linalg.matrix_rank",
]  # fmt: skip


def decompose(c: Context) -> Step:
    """Matrices that cannot be decomposed, which only their numbers tell."""
    n = c.between(1, 4)
    kind = c.pick(["float32", "float64"])
    matrix = c.pick(
        [
            f"torch.full(({n}, {n}), float('nan'), dtype={kind}, device=D)",
            f"torch.zeros(({n}, {n}), dtype={kind}, device=D)",
            f"-torch.eye({n}, dtype={kind}, device=D)",
            f"torch.eye({n}, dtype={kind}, device=D) * 2",
            f"torch.eye({n}, {n + 1}, dtype={kind}, device=D)",
            f"torch.eye({n}, dtype={kind}, device=D).expand(2, {n}, {n})",
        ]
    )
    # Not lstsq: cpu's reads pivots that nobody has written, and may die of them.
    right = f"torch.ones(({n + c.below(2)}, 2), dtype={kind}, device=D)"
    text = c.pick(
        [
            *(f"torch.{name}({matrix})" for name in LINALG),
            f"torch.linalg.solve({matrix}, {right})",
            f"torch.linalg.svd({matrix})[1]",
            f"torch.linalg.solve_triangular({matrix}, {right}, upper=True)",
            f"torch.cholesky_solve({right}, {matrix})",
            f"torch.linalg.lu_factor({matrix})",
            f"torch.linalg.matrix_power({matrix}, {c.between(-1, 3)})",
        ]
    )
    return f"{c.new()} = {text}"


# Around 65,536 elements, from which on kernels may run in pieces.
LARGE = [
    (256, 257), (257, 256), (260, 260), (65537,), (65536,), (65535,), (70001,),
    (3, 150, 150), (300, 230), (2, 3, 110, 110), (1, 70000), (66000, 1),
]  # fmt: skip
SMALL = [(3, 4), (5, 3), (4, 4), (1, 6), (2, 3, 4), (7, 2), (2, 3, 4, 4)]
LARGE_KINDS = ["float32", "float32", "float32", "float64", "int64", "bfloat16", "bool"]
# Numbers that are sums of quarters: they add up to the same in any order.
EXACT = (0, 1, 2, 3, 4, 5)


def _large(c: Context, shape: tuple[int, ...] | None = None, kind: str = "") -> str:
    shape = shape or c.pick(LARGE)
    return f"big({shape}, {kind or c.pick(LARGE_KINDS)}, {c.pick(EXACT)})"


def _result(c: Context, *, large: bool = True) -> str:
    return f"b{c.below(3)}" if large else c.new()


def large(c: Context) -> Step:
    """Elements, sums and copies of large tensors, also of all but one element."""
    b = c.own("b")
    if b is None or c.chance(3):
        shape, kind = c.pick(LARGE), c.pick(LARGE_KINDS)
        b, other = _large(c, shape, kind), _large(c, shape, kind)
        if c.chance(4):
            return f"{_result(c)} = {b}"
    else:
        shape, kind = tuple(c.of(b).shape), NAME_OF[c.of(b).dtype]
        other = c.own("b") or b
    row = _large(c, shape[-1:], kind)
    text = c.pick(
        [
            f"{b} + {other}",
            f"{b} * {row}",
            f"torch.maximum({b}, {other})",
            f"{b}.exp()",
            f"{b}.abs().sqrt()",
            f"{b}.sigmoid()",
            f"F.relu({b})",
            f"{b} > 0",
            f"{b}.to({c.pick(LARGE_KINDS)})",
            f"{b}.mT.contiguous()",
            f"{b}.flatten()[1:].clone()",
            f"{b}.flatten()[:-1] + {b}.flatten()[1:]",
            f"{b}[..., 1:].mul(2)",
            f"{b}.flip(0)",
            f"torch.where({b} > 0, {b}, {row})",
            f"{b}.cumsum(-1)",
            f"{b}.softmax(-1)",
            f"F.layer_norm({b}, {shape[-1:]})",
            f"{b}.clamp(0, 1)",
            f"{b}.sort(-1).values",
            f"torch.cat([{b}, {b}[:1]])",
            f"{b}.copy_({other})",
            f"{b}.add_(1)",
            f"{b}.mul_({row})",
            f"{b}.masked_fill_({b} > 1, 0)",
            f"{b}.to('cpu', copy=True).to(D, copy=True)",
            f"{b}.triu()",
            f"{b}.roll(1)",
        ]
    )
    if c.below(4):
        return f"{_result(c)} = {text}"
    text = c.pick(
        [
            f"{b}.sum()",
            f"{b}.amax(-1)[:5].clone()",
            f"{b}.sum(0).flatten()[:5].clone()",
            f"{b}.argmax()",
            f"{b}.flatten()[-3:].clone()",
            f"{b}.any()",
            f"{b}.count_nonzero()",
            f"({b} > 2).nonzero()[:4].clone()",
            f"{b}.flatten()[7].item()",
            f"{b}.float().mean()",
            f"{b}.topk(1, 0).indices.flatten()[:4].clone()",
        ]
    )
    return f"{_result(c, large=False)} = {text}"


def _calls(c: Context, shape: tuple[int, ...], kind: str) -> dict[str, int]:
    """Return calls on `x` with a size n, and the n that is right."""
    first, last = shape[0], shape[-1]
    seed, inner = c.pick(EXACT), (*shape[:-1],)
    rest = ", ".join(map(str, shape[1:]))
    rows = f"torch.arange(3, device=D) % {first}"
    numbers = f"{kind}, {seed}"
    out = c.between(2, 5)
    weight = f"big(({out}, {last}), {numbers})"
    count = 1
    for size in shape:
        count *= size
    calls = {
        f"F.linear(x, {weight}, big((n,), {numbers}))": out,
        f"F.linear(x, big(({out}, n), {numbers}))": last,
        f"x @ big((n, {out}), {numbers})": last,
        f"x.index_put_(({rows},), big((n, {rest}), {numbers}))": 3,
        f"x.index_put_(({rows},), big((n, {rest}), {numbers}), accumulate=True)": 3,
        f"x.index_add_(0, {rows}, big((n, {rest}), {numbers}))": 3,
        f"x.index_copy_(0, {rows}, big((n, {rest}), {numbers}))": 3,
        f"x.index_reduce_(0, {rows}, big((n, {rest}), {numbers}), 'amax')": 3,
        f"x.put_({rows}, big((n,), {numbers}))": 3,
        f"x.put_({rows}, big((n,), {numbers}), accumulate=True)": 3,
        f"x[big((n,), bool, {seed})]": first,
        f"x.masked_fill_(big((n,), bool, {seed}), 2)": last,
        f"x.masked_fill(big((n,), bool, {seed}), 2)": last,
        f"x.masked_select(big((n,), bool, {seed}))": last,
        f"x.masked_scatter_(big((n,), bool, {seed}), x.clone())": last,
        f"x.__setitem__(big((n,), bool, {seed}), 1)": first,
        f"torch.where(big((n,), bool, {seed}), x, x)": last,
        f"x + big((n,), {numbers})": last,
        f"x.mul_(big((n,), {numbers}))": last,
        f"torch.addcmul(x, x, big((n,), {numbers}))": last,
        f"x.copy_(big((n,), {numbers}))": last,
        f"torch.cat([x, big((2, *{inner[1:]}, n), {numbers})])": last,
        f"torch.stack([x, big((*{inner}, n), {numbers})])": last,
        "x.view(n)": count,
        "x.reshape(n, -1)": first,
        "x.split([1, n], 0)[1].clone()": first - 1,
        "F.layer_norm(x, (n,))": last,
        f"F.layer_norm(x, ({last},), big((n,), {numbers}))": last,
        f"F.layer_norm(x, ({last},), None, big((n,), {numbers}))": last,
        f"F.rms_norm(x, ({last},), big((n,), {numbers}))": last,
        f"F.batch_norm(x, None, None, big((n,), {numbers}), training=True)": shape[1],
        f"F.batch_norm(x, big((n,), {numbers}), x.new_ones({shape[1]}))": shape[1],
        f"F.group_norm(x, 1, big((n,), {numbers}))": shape[1],
        f"F.prelu(x, big((n,), {numbers}))": shape[1],
        f"F.mse_loss(x, big((*{inner}, n), {numbers}), reduction='none')": last,
        f"x.gather(0, big((1, *{inner[1:]}, n), bool, {seed}).long() * 0)": last,
        f"x.scatter_add_(0, x.new_zeros((3, *{inner[1:]}, n), dtype=int64), x)": last,
        f"x.repeat_interleave(big((n,), bool, {seed}).long(), 0)": first,
        f"torch.take_along_dim(x, x.new_zeros((1, *{inner[1:]}, n), dtype=int64), 0)": last,
        f"torch.lerp(x, x, big((n,), {numbers}))": last,
        f"torch._foreach_add([x, x], [x, big((n,), {numbers})])": last,
        "x.index_fill_(0, torch.zeros(1, n, device=D, dtype=int64)[0], 1)": 1,
        f"torch.searchsorted(big((*{inner}, 3), {numbers}), x[..., :n])": last - 1,
    }
    if len(shape) == 2:
        target = "big((n,), bool, 1).long()"
        square = f"big(({last}, {out}), {numbers})"
        calls |= {
            f"torch.addmm(big((n,), {numbers}), x, {square})": out,
            f"torch.addmm(big(({first}, n), {numbers}), x, {square})": out,
            f"torch.mv(x, big((n,), {numbers}))": last,
            f"torch.addmv(big((n,), {numbers}), x, big(({last},), {numbers}))": first,
            f"torch.mm(big((2, n), {numbers}), x)": first,
            f"F.cross_entropy(x, {target} % {last})": first,
            f"F.nll_loss(x, {target} % {last}, big(({last},), {numbers}))": first,
            f"F.nll_loss(x, x[:, 0].long() * 0, big((n,), {numbers}))": last,
            f"F.embedding_bag(x.new_zeros(4, dtype=int64), x, "
            f"torch.arange(2, device=D), per_sample_weights=big((n,), {numbers}), "
            "mode='sum')": 4,
            f"F.multi_margin_loss(x, {target} % {last})": first,
            f"F.bilinear(x, x, big((2, {last}, {last}), {numbers}) "
            f"if {last} < 9 else big((1, n, 1), {numbers}), big((n,), {numbers}))": 2,
        }
    if len(shape) == 3:
        calls |= {
            f"F.conv1d(x, big(({out}, {shape[1]}, 1), {numbers}), "
            f"big((n,), {numbers}))": out,
            f"F.conv1d(x, big(({out}, n, 1), {numbers}))": shape[1],
            f"torch.bmm(x, big(({first}, n, 2), {numbers}))": last,
            f"torch.bmm(x, big((n, {last}, 2), {numbers}))": first,
            f"torch.baddbmm(big((n,), {numbers}), x, "
            f"big(({first}, {last}, 2), {numbers}))": 2,
            f"F.scaled_dot_product_attention(x, x, x, big((n,), {numbers}))": shape[1],
        }
    if len(shape) == 4:
        conv = f"big(({out}, {shape[1]}, 1, 2), {numbers})"
        calls |= {
            f"F.conv2d(x, {conv}, big((n,), {numbers}))": out,
            f"F.conv2d(x, big(({out}, n, 1, 2), {numbers}))": shape[1],
            f"F.conv_transpose2d(x, big(({shape[1]}, {out}, 1, 2), {numbers}), "
            f"big((n,), {numbers}))": out,
            f"F.conv_transpose2d(x, big((n, {out}, 1, 2), {numbers}))": shape[1],
            f"F.instance_norm(x, big((n,), {numbers}), x.new_ones({shape[1]}))": shape[
                1
            ],
        }
    return calls


def wrong_size(c: Context) -> Step:
    """A call that is right and then, or at once, one with a size that is not."""
    shape = c.pick(SMALL) if c.chance(3) else c.pick([s for s in LARGE if len(s) > 1])
    kind = c.pick(["float32", "float32", "float64", "int64"])
    x = f"big({shape}, {kind}, {c.pick(EXACT)})"
    if (b := c.own("b", lambda t: t.dim() > 1 and t.dtype in NAME_OF)) and c.flag():
        x, shape, kind = b, tuple(c.of(b).shape), NAME_OF[c.of(b).dtype]
    calls = list(_calls(c, shape, kind).items())
    text, right = calls[(c.below(256) << 8 | c.below(256)) % len(calls)]
    wrong = right + c.pick([1, 1, -1])
    sizes = c.pick(
        [
            (right, right, wrong),
            (right, wrong),
            (wrong,),
            (right,),
            (right, right),
            (wrong, right),
        ]
    )
    return f"{_result(c)} = [{text} for x in [{x}] for n in {sizes}][-1]"
