"""Steps that run otherwise than called: in another state, on another device, or as a
function that is handed to a graph, a compiler, a transform or autograd.
"""

from tests.differential.authors import Step
from tests.differential.context import NAME_OF, Context, floating


def autocast(c: Context) -> Step:
    """Regions of operators that autocast treats alike on each device.

    Other ones are each device's own matter: on cpu a sum stays in float16.
    """
    t = c.any(lambda t: floating(t) and t.dim() == 2)
    kind = c.pick(["float32", "float32", "float64", "float16"])
    if t is None:
        return f"{c.new()} = {c.data((3, 4), kind)}"
    rows, k = c.of(t).shape
    n = c.between(1, 3)
    low = c.pick(["bfloat16", "bfloat16", "float16"])
    right, row = c.data((k, n), kind), c.data((n,), kind)
    slot = c.below(7)
    a, b, w = (f"t{slot + i}" for i in range(3))
    region = f"with torch.autocast(D, dtype={low}"
    return c.pick(
        [
            f"{region}): {a} = {t} @ {right}",
            f"{region}): {a} = torch.mm({t}, {right}); {b} = {a}.relu() + {row}",
            f"{region}): {a} = F.linear({t}, {right}.t(), {row}); {b} = {a}.mul(2)",
            f"{region}): {a} = torch.addmm({row}, {t}, {right})",
            f"{region}): {a} = torch.bmm({t}[None], {right}[None])",
            f"{region}): {a} = F.conv1d({t}[None], {c.data((n, rows, 1), kind)})",
            f"{region}, enabled=False): {a} = {t} @ {right}",
            f"{region}):\n  {a} = {t} @ {right}\n"
            f"  with torch.autocast(D, enabled=False): {b} = {t} @ {right}",
            # A weight's copy is kept until the region ends, also for backward.
            f"{region}): {w} = {right}.requires_grad_(); {a} = torch.mm({t}, {w}); "
            f"{w}.data.add_(1); {b} = torch.mm({t}, {w})",
            f"{region}, cache_enabled=False): {w} = {right}.requires_grad_(); "
            f"{a} = torch.mm({t}, {w}); {w}.data.add_(1); {b} = torch.mm({t}, {w})",
            f"{region}): {w} = {right}.requires_grad_(); {a} = torch.mm({t}, {w}); "
            f"{a}.float().sum().backward()",
            f"{region}): {a} = torch.is_autocast_enabled(D), "
            "torch.get_autocast_dtype(D)",
            f"{a} = torch.is_autocast_enabled(D)",
            f"{region}): {a} = {t} + 1; {b} = {t}.mul(2).relu()",
        ]
    )


def deterministic(c: Context) -> Step:
    """What deterministic mode refuses or fills in on both devices."""
    t = c.any(lambda t: t.dim() > 0)
    if t is None:
        return None
    kind = NAME_OF.get(c.of(t).dtype, "float32")
    size = c.of(t).numel()
    rows = c.indices(c.of(t).shape[0], (2,))
    if c.chance(3):
        made = c.pick(
            [
                f"torch.empty({c.shape()}, dtype={c.kind()}, device=D)",
                f"torch.empty_like({t})",
                f"{t}.new_empty({c.shape()})",
                f"torch.empty_strided((2, 3), (3, 1), dtype={kind}, device=D)",
                f"{t}.clone().resize_({size + 3})",
            ]
        )
        return f"with deterministic(warn_only=False): {c.new()} = {made}"
    text = c.pick(
        [
            f"{t}.put_({c.indices(size, (2,))}, {c.data((2,), kind)})",
            f"{c.new()} = {t}[{rows}]",
            f"{t}[{rows}] = {c.number()}",
            f"{t}.index_add_(0, {rows}, {t}[:2].clone())",
            f"{t}.index_put_(({rows},), {t}[:2].clone(), accumulate=True)",
            f"{c.new()} = {t}.cumsum(0)",
            f"{c.new()} = {t}.scatter_add(0, {t}.long() * 0, {t})",
            f"{c.new()} = {t}.median()",
            f"{c.new()} = {t}.repeat_interleave(2)",
            f"{c.new()} = torch.are_deterministic_algorithms_enabled()",
        ]
    )
    fill = c.pick(["", "", "fill=False, "])
    return f"with deterministic({fill}warn_only=False): {text}"


def few_plans(c: Context) -> Step:
    """A device that remembers few calls, so that it gives up those before."""
    if c.chance(4):
        return "pop()"
    return f"push(plans({c.pick([1, 2, 4, 8, 16])}))"


def many_calls(c: Context) -> Step:
    """As many kinds of calls as make a device give up the ones before.

    A program has few of them else; the first ones are made again afterwards.
    """
    t = c.any(lambda t: floating(t) and t.dim() > 0)
    if t is None:
        return None
    names = c.pick([("add", "mul", "sub"), ("maximum", "div"), ("add", "atan2")])
    kinds = "(float32, float64, float32)"
    text = (
        f"[getattr(torch, f)(data((n,), k, 1), data((n,), k, 2)) "
        f"for n in ({c.between(1, 4)}, {c.between(4, 7)}, {c.between(1, 4)}) "
        f"for k in {kinds} for f in {names}]"
    )
    limit = f"with plans({c.pick([1, 2, 4, 8])}): " if c.below(3) else ""
    return f"{limit}{c.new()} = {text}"


def second_device(c: Context) -> Step:
    """Tensors of another device: e0, e1, ... and copies to and from it."""
    t, e = c.any(), c.own("e")
    new = f"e{c.below(3)}"
    if e is None or (t and c.chance(4)):
        source = t or c.data(c.shape())
        if c.flag():
            text = c.pick(["+ 1", "* 2", "- 1", "/ 2", "> 0"])
            return f"{new} = {source}.to(E, copy=True) {text}"
        return c.pick(
            [
                f"{new} = {source}.to(E, copy=True)",
                f"{new} = {source}.to(E, copy=True, non_blocking=True)",
                f"{new} = torch.ones({c.shape()}, dtype={c.kind()}, device=E)",
                f"{new} = torch.empty_like({source}, device=E).copy_({source})",
                f"with second(): {new} = torch.full({c.shape()}, 2.5, device=E)",
                f"{new} = {source}.to(E, {c.kind()}, copy=True)",
                f"{new} = {source}.mT.to(E, copy=True)",
            ]
        )
    other = c.own("e") or e
    shape = tuple(c.of(e).shape)
    if c.chance(3):
        return f"{c.new()} = " + c.pick(
            [
                f"{e}.to(D, copy=True)",
                f"{e}.to(D, copy=True, non_blocking=True)",
                f"({e} * 2).to(D, copy=True)",
                f"torch.empty_like({e}, device=D).copy_({e})",
                f"{e}.mT.to(D, float64, copy=True)",
                f"{c.data(shape)}.copy_({e})",
                f"{e}.tolist()",
                f"{e}.to('cpu', copy=True).to(D, copy=True)",
            ]
        )
    return c.pick(
        [
            f"{new} = {e} + 1",
            f"{new} = {e} * {other}",
            f"{new} = {e}.exp()",
            f"{new} = {e}.sum()",
            f"{new} = {e}[1:]",
            f"{new} = {e}.mT",
            f"{new} = {e}.flatten()",
            f"{new} = torch.cat([{e}, {other}])",
            f"{new} = {e}.float() @ {e}.float().mT",
            f"{new} = {e}.softmax(-1)",
            f"with second(): {new} = {e}.sort(-1).values",
            f"with second(): {e}.add_(1)",
            f"{e}.mul_(2)",
            f"{e}.copy_({c.data(shape)})",
            f"{e}.copy_({c.data(shape)}, non_blocking=True)",
            f"{e}.zero_()",
            f"{e}.copy_({other})",
            f"{new} = {e}.to({c.kind()})",
            f"{new} = torch.where({e} > 0, {e}, {other})",
            f"{new} = torch.zeros_like({e})",
            f"{new} = {e}.new_full((2, 3), 7)",
            f"{new} = F.layer_norm({e}, {shape[-1:]})",
            f"torch._foreach_add_([{e}, {other}], 1)",
        ]
    )


def pinned(c: Context) -> Step:
    """Memory of the host that copies read and write when they get there."""
    t, p = c.any(), c.own("p")
    if p is None or c.chance(4):
        return f"p{c.below(2)} = pinned({c.shape()}, {c.kind()}, {c.below(6)})"
    shape = tuple(c.of(p).shape)
    kind = NAME_OF[c.of(p).dtype]
    new = c.data(shape, kind if c.flag() else None)
    return c.pick(
        [
            f"{c.new()} = {p}.to(D, copy=True, non_blocking=True)",
            f"{c.new()} = {p}.to(D, copy=True)",
            f"{c.new()} = {p}.to(D, float64, copy=True, non_blocking=True)",
            f"{c.new()} = {new}.copy_({p}, non_blocking=True)",
            f"{p}.copy_({new}, non_blocking=True)",
            f"{p}.copy_({new})",
            f"{p}.copy_({new}.mul_(2), non_blocking=True); wait(); {p}.add_(1)",
            f"{c.new()} = {p}.mT.to(D, copy=True, non_blocking=True)",
            f"wait(); {p}.mul_(2)",
            f"wait(); {p}.zero_()",
            f"{p}.copy_({t or new}, non_blocking=True)",
            f"{c.new()} = {p}[..., ::2].to(D, copy=True, non_blocking=True)",
            f"wait(); {c.new()} = {p}.tolist()",
            # Waited for: nothing orders the streams of two devices.
            f"e0 = {p}.to(E, copy=True)",
        ]
    )


# Of a float tensor x of one dimension or more.
FORMULAS = [
    "x * 2 + 1", "x.sin() * x", "x.exp().sum()", "x.softmax(-1)", "x.relu()",
    "x.square().mean(-1)", "x.tanh().cumsum(-1)", "x.flip(0)", "x.clamp(0, 1)",
    "(x * x).sum(-1)", "torch.cat([x, x])", "x.unsqueeze(0) * x", "x.abs().sqrt()",
    "x.sigmoid().log()", "torch.where(x > 0, x, -x)", "x.reshape(-1)", "x.amax(-1)",
    "torch.stack([x, x * 2])", "x.logsumexp(-1)", "x[..., :1] * x", "x.var(-1)",
]  # fmt: skip


SHAPES = [(3,), (2, 3), (4, 4), (2, 3, 4), (300, 230)]


def graph(c: Context) -> Step:
    """A part that is recorded and replayed, with inputs that change in between.

    What it reads and writes is r0, r1 and its result, which nobody else resizes.
    """
    x = c.own("r", lambda t: floating(t) and t.dim() > 0)
    new, times = f"r{c.between(2, 3)}", c.between(1, 3)
    made = ""
    if x is None or c.chance(6):
        x, shape = f"r{c.below(2)}", c.pick(SHAPES)
        kind = c.pick(["float32", "float32", "float64"])
        made = f"{x} = big({shape}, {kind}, {c.below(6)}); "
    else:
        shape = tuple(c.of(x).shape)
        which = c.below(8)
        if which < 3:
            return f"again({times})"
        if which == 3:
            return f"{x}.{c.pick(['add_(1)', 'mul_(0.5)', 'neg_()', 'sin_()'])}"
        if which == 4:
            return f"{c.new()} = {x}.flatten()[:8].clone()"
    body = c.pick(
        [
            *FORMULAS,
            *["x.add_(1) * 2", "x.mul_(0.5).sum()"] * 3,
            "(x @ x.mT).relu()",
            "torch.nn.functional.layer_norm(x, x.shape[-1:])",
            "x.sort(-1).values",
            "x.clone().index_fill_(0, torch.tensor([0]).to(x.device), 7)",
            f"x + torch.zeros({(*shape[:-1], shape[-1] + 1)}, device=x.device)",
            "x.new_zeros(x.shape).add_(x)",
            "torch._foreach_mul([x, x.neg()], 3)[1]",
        ]
    )
    return f"{made}{new} = graph(lambda x: {body}, {x}, times={times})"


def compiled(c: Context) -> Step:
    """A compiled part: few of them, as each costs as much as a hundred calls."""
    t = c.any(lambda t: floating(t) and t.dim() > 0 and t.numel() > 0)
    if t is None or c.below(3):
        return transform(c)
    formula = c.pick(FORMULAS[:6])
    return f"{c.new()} = compiled({formula!r})({t}.detach())"


def transform(c: Context) -> Step:
    """vmap, and derivatives forward and backward, of one another too."""
    t = c.any(lambda t: floating(t) and t.dim() > 0)
    if t is None:
        return None
    shape = tuple(c.of(t).shape)
    kind = NAME_OF.get(c.of(t).dtype, "float32")
    like = c.data(shape, kind)
    f = f"lambda x: {c.pick(FORMULAS)}"
    g = f"lambda x: ({c.pick(FORMULAS)}).sum()"
    size = shape[0] + (1 if c.chance(20) else 0)
    d = c.dim(t)
    text = c.pick(
        [
            f"torch.func.vmap({f})({t})",
            f"torch.func.vmap({f})({t})",
            f"torch.func.vmap({f}, in_dims={d})({t})",
            f"torch.func.vmap({f}, out_dims=-1)({t})",
            f"torch.func.vmap(lambda x, y: x * y)({t}, {c.data((size,), kind)})",
            f"torch.func.vmap(lambda x, y: x + y, in_dims=({d}, None))({t}, 2.5)",
            f"torch.func.vmap({f}, chunk_size=2)({t})",
            f"torch.func.vmap(torch.func.vmap(lambda x: x * 2))({t})",
            f"torch.func.vmap(torch.func.grad({g}))({t})",
            f"torch.func.jvp({f}, ({t},), ({like},))",
            f"torch.func.jvp({f}, ({t},), ({like},))",
            f"torch.func.grad({g})({t})",
            f"torch.func.grad_and_value({g})({t})",
            f"torch.func.vjp({f}, {t})[0]",
            f"torch.func.jvp(torch.func.grad({g}), ({t},), ({like},))",
            f"torch.func.jacfwd({g})({t})",
            f"torch.func.jacrev({g})({t})",
            f"torch.func.vmap(torch.dot)({t}, {like})",
            f"torch.func.vmap(lambda x: x.add_(1))({t}.clone())",
            f"torch.func.functionalize(lambda x: x.clone().add_(1))({t})",
        ]
    )
    if c.chance(4):
        ad = "torch.autograd.forward_ad"
        body = f"({f})({ad}.make_dual({t}.detach(), {like}))"
        return (
            f"with {ad}.dual_level(): {c.new()} = {ad}.unpack_dual({body}).tangent"
            ".clone()"
        )
    return f"{c.new()} = {text}"


def function(c: Context) -> Step:
    """Functions with a backward of their own."""
    t = c.any(floating)
    if t is None:
        return None
    leaf = c.any(lambda t: floating(t) and t.requires_grad and t.is_leaf)
    x = leaf or f"{t}.detach().requires_grad_()"
    return f"{c.new()} = " + c.pick(
        [
            f"Scaled.apply({x}, {c.number()})",
            f"Doubled.apply({t})",
            f"Doubled.apply({x}.clone())",
            f"Parts.apply({x})",
            f"torch.autograd.grad(Scaled.apply({x}, 3).sum(), {x})"
            if leaf
            else f"Scaled.apply({t}, 3)",
            f"torch.utils.checkpoint.checkpoint(torch.sin, {x}, use_reentrant=False)",
            f"Parts.apply({x})[0].mul(2)",
        ]
    )


def recur(c: Context) -> Step:
    """Recurrent modules, of sequences of one length and then of another."""
    kind = c.pick(["LSTM", "GRU", "RNN"])
    options = c.pick(
        [
            "",
            ", num_layers=2",
            ", bidirectional=True",
            ", batch_first=True",
            ", bias=False",
        ]
    )
    net = f"rnn({kind!r}, 3, {c.between(2, 3)}{options})"
    first, then = c.between(1, 6), c.between(1, 6)
    batch, seed = c.between(1, 3), c.below(6)
    x = f"data((n, {batch}, 3), float32, {seed})"
    lengths = sorted((c.between(1, 4) for _ in range(batch)), reverse=True)
    lengths[0] = 4
    packed = (
        f"torch.nn.utils.rnn.pack_padded_sequence(data((4, {batch}, 3), float32, "
        f"{seed}), {lengths})"
    )
    gradient = f"data((n, {batch}, 3), float32, {seed}).requires_grad_()"
    return f"{c.new()} = " + c.pick(
        [
            f"[{net}({x})[0].detach() for n in ({first}, {then}, {first})]",
            f"[{net}({x})[0].detach() for n in ({first}, {then}, {first})]",
            f"{net}(data(({first}, {batch}, 3), float32, {seed}))[1]",
            f"{net}({packed})[0].data.detach()"
            if "batch_first" not in options
            else f"{net}(data((2, 3, 3), float32, {seed}))[0].detach()",
            f"[torch.autograd.grad({net}(x)[0].sum(), x)[0] for n in ({first}, {then}) "
            f"for x in [{gradient}]]",
            f"{net}(data(({first}, {batch}, 4), float32, {seed}))[0]",
        ]
    )


def operator(c: Context) -> Step:
    """An operator that is defined, called, given up and defined with another meaning."""
    t = c.any(lambda t: floating(t) and t.dim() > 0)
    if t is not None and c.below(5) < 3:
        return c.pick(
            [
                f"{c.new()} = torch.ops.fuzzed.op({t}.detach())",
                f"{c.new()} = torch.ops.fuzzed.op({t}.detach())",
                f"{c.new()} = torch.ops.fuzzed.op({c.data((3,), 'float32')})",
                f"{c.new()} = torch.ops.fuzzed.op({t}.detach().clone())",
            ]
        )
    key = c.pick(["CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd"])
    if c.chance(8):
        return "give_up()"
    kernel = c.pick(
        [
            f"lambda x: x * {c.between(2, 5)}",
            f"lambda x: x * {c.between(2, 5)}",
            f"lambda x: x + {c.between(2, 5)}",
            "lambda x: x.neg()",
            "lambda x: x.sum()",
            "lambda x: torch.cat([x, x])",
            "lambda x: x.double().neg()",  # an operator returns no argument
        ]
    )
    if c.chance(4):
        schema = "(Tensor x) -> (Tensor, Tensor)"
        return f"define(lambda x: (x * 2, x.sum()), {key!r}, {schema!r})"
    return f"define({kernel}, {key!r})"
