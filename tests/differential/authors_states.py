"""Steps that run in another state: autocast, deterministic, few plans, elsewhere."""

from __future__ import annotations

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
