"""Steps on numbers at the ends of a dtype's range, and on random ones."""

from __future__ import annotations

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
