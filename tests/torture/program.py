"""A program of some forty operators, on one device or the other.

Two streams, events, a graph that is captured and replayed, copies both ways, a
task of many arguments, random numbers, backward, a callback, waits of several
kinds. On `cpu` it is the same arithmetic in order, which is what it should give.
"""

from collections.abc import Callable
from typing import Any

import torch

State = dict[str, Any]
Step = Callable[[State], None]
N = 48


def _inputs(s: State) -> None:
    base = torch.arange(N * N, dtype=torch.float32).reshape(N, N) / (N * N)
    s["x"] = base.to(s["device"], copy=True)
    s["w"] = base.t().contiguous().to(s["device"], copy=True)
    s["index"] = torch.arange(0, N, 3).to(s["device"])


def _set(name: str, value: Callable[[State], Any]) -> Step:
    def step(s: State) -> None:
        s[name] = value(s)

    return step


def _on_side(name: str, value: Callable[[State], Any]) -> Step:
    """Do it on the other stream, ordered by events before and behind."""

    def step(s: State) -> None:
        if s["device"] == "cpu":
            s[name] = value(s)
            return
        here, side = torch.npu.current_stream(), s["side"]
        side.wait_event(here.record_event())
        with torch.npu.stream(side):
            s[name] = value(s)
        here.wait_event(side.record_event())
        s[name].record_stream(here)

    return step


def _captured(s: State) -> None:
    def body() -> torch.Tensor:
        return torch.relu(s["x"] @ s["w"] - 1).mul_(0.5) + s["m"]

    if s["device"] == "cpu":
        s["g"] = body()
        return
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        s["g"] = body()
    for _ in range(2):
        graph.replay()
    s["graph"] = graph


def _backward(s: State) -> None:
    leaf = s["x"].detach().requires_grad_()
    torch.tanh(leaf @ s["w"]).sum().backward()
    s["grad"] = leaf.grad


def _foreach(s: State) -> None:
    parts = [s["x"][i % N] + i for i in range(60)]
    torch._foreach_mul_(parts, 0.5)
    s["parts"] = torch.stack(parts)


def _callback(s: State) -> None:
    s["called"] = torch.zeros(4).to(s["device"])
    if s["device"] == "cpu":
        s["called"].add_(3)
    else:
        torch.npu.current_stream().submit(lambda t: t.add_(3), s["called"])


def _event(s: State) -> None:
    if s["device"] != "cpu":
        event = torch.npu.Event(enable_timing=True)
        event.record()
        event.synchronize()


def _pinned(s: State) -> None:
    host = torch.arange(64, dtype=torch.float32)
    if s["device"] != "cpu":
        host = host.pin_memory()
    s["pinned"] = host.to(s["device"], non_blocking=True) + 1


def _new_stream(s: State) -> None:
    s["fresh"] = s["x"] * 3
    if s["device"] != "cpu":
        stream = torch.npu.Stream()
        stream.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(stream):
            s["fresh"] = s["x"] * 3
        stream.synchronize()


def _synchronize(s: State) -> None:
    if s["device"] != "cpu":
        torch.npu.synchronize()


STEPS: tuple[Step, ...] = (
    _inputs,
    _set("a", lambda s: s["x"] + 1),
    _set("b", lambda s: s["a"] * s["w"]),
    _set("c", lambda s: s["b"] @ s["x"]),
    _set("d", lambda s: torch.softmax(s["c"], -1)),
    _on_side("e", lambda s: torch.sigmoid(s["d"])),
    _set("f", lambda s: s["e"].sum(0)),
    _set("m", lambda s: s["x"].mean()),
    _set("h", lambda s: torch.cat([s["a"], s["b"]], 1)),
    _set("i", lambda s: s["h"].index_select(1, s["index"])),
    _set("j", lambda s: torch.nn.functional.layer_norm(s["i"], s["i"].shape[-1:])),
    _on_side("k", lambda s: s["j"].t().contiguous()),
    _set("l", lambda s: torch.where(s["k"] > 0, s["k"], -s["k"])),
    _foreach,
    _set("n", lambda s: torch.nn.functional.gelu(s["l"])),
    _set("o", lambda s: s["n"].clamp(-1, 1).to(torch.float64)),
    _event,
    _set("p", lambda s: torch.nn.functional.embedding(s["index"] % N, s["w"])),
    _set("q", lambda s: s["p"].argmax(1)),
    _set("r", lambda s: torch.sort(s["p"], 1).values),
    _set("number", lambda s: s["f"].sum().item()),
    _captured,
    _set("t", lambda s: s["x"].cumsum(0)),
    _set("u", lambda s: (s["x"] > 0.5).nonzero()),
    _backward,
    _callback,
    _pinned,
    _set("v", lambda s: torch.einsum("ij,kj->ik", s["x"], s["w"])),
    _set("y", lambda s: torch.nn.functional.linear(s["x"], s["w"], s["f"])),
    _set("z", lambda s: torch.stack([s["a"], s["b"]]).amax(0)),
    _set("z", lambda s: s["z"].masked_fill(s["x"] > 0.7, 0.0)),
    _set("z", lambda s: s["z"].exp().log1p().sqrt()),
    _synchronize,
    _new_stream,
    _set("aa", lambda s: s["z"].var(1)),
    _set("ab", lambda s: s["x"].flip(0).roll(1, 1)),
    _set("ac", lambda s: torch.nn.functional.pad(s["x"], (1, 1))),
    _set("ad", lambda s: torch.linspace(0, 1, N, device=s["device"]) * s["aa"]),
    _set("ae", lambda s: s["x"].new_full((300, 300), 2.0).sum()),
    _set("af", lambda s: torch.full((1 << 21,), 1.0, device=s["device"])[::4096]),
    _set("ag", lambda s: s["x"][1:5, ::2].clone()),
    _set("ag", lambda s: s["ag"].index_fill(0, torch.tensor(0).to(s["device"]), 1)),
)


def run(device: str, before: Callable[[int, State], None] | None = None) -> State:
    """Do all steps; return what they made, on the host.

    `before` is called before each step with its number, and behind the last.
    """
    s: State = {"device": device}
    if device != "cpu":
        s["side"] = torch.npu.Stream()
    for number, step in enumerate(STEPS):
        if before:
            before(number, s)
        step(s)
    if before:
        before(len(STEPS), s)
    if device != "cpu":
        torch.npu.synchronize()
    return {
        name: value.detach().cpu() if isinstance(value, torch.Tensor) else value
        for name, value in s.items()
        if isinstance(value, torch.Tensor | float)
    }


def differences(found: State, expected: State) -> list[str]:
    """Return the names of what is not as it should be."""
    return [
        name
        for name, value in expected.items()
        if name not in found
        or not torch.allclose(
            torch.as_tensor(found[name]).double(),
            torch.as_tensor(value).double(),
            rtol=1e-4,
            atol=1e-5,
        )
    ]
