"""Steps that hand a function over: to a graph, a compiler, a transform, autograd."""

from __future__ import annotations

from tests.differential.authors import Step
from tests.differential.context import NAME_OF, Context, floating

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
