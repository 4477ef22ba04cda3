"""Python that runs in the middle of a launch may launch: results are cpu's.

A launch may run a signal handler where it waits for memory or for room in the
queue, and finalizers wherever something Python is made for it.
"""

import gc
import signal

import pytest
import torch

MIB = 1 << 20


class Cycle:
    """Garbage that only the collector finds, and that calls `act` when found."""

    def __init__(self, act):
        self.me, self.act = self, act

    def __del__(self):
        self.act()


class Nested:
    """Launches calls of the same operators as the program, with other arguments.

    Results are compared when all is done: in the middle nobody may wait.
    """

    def __init__(self, device):
        self.host = torch.arange(48.0).view(6, 8)
        self.there = self.host.to(device)
        self.found = []

    def calls(self, x, n):
        part = x[: 1 + n % 6]
        return torch.cat([torch.add(part, part, alpha=3 + n), part * 2, part.t().t()])

    def launch(self):
        n = len(self.found)
        self.found.append((n, self.calls(self.there, n)))

    def check(self):
        assert self.found
        for n, result in self.found:
            assert result.cpu().equal(self.calls(self.host, n)), n


@pytest.fixture
def alarm():
    """alarm(act): in 0.1 s the main thread calls act() from a signal handler."""
    before = signal.getsignal(signal.SIGALRM)

    def arm(act):
        signal.signal(signal.SIGALRM, lambda *_: act())
        signal.setitimer(signal.ITIMER_REAL, 0.1)

    yield arm
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("into", ["another queue", "the full queue"])
def test_a_handler_launches_while_a_launch_waits_for_room_in_the_queue(alarm, into):
    """The queue is held until the handler lets it go: the launch does wait."""
    nested, stream, gate = Nested("npu"), torch.npu.Stream(), torch.npu.ExternalEvent()
    nested.calls(nested.there, 0)
    x = torch.arange(6.0).npu()
    torch.npu.synchronize()
    results = []

    def handler():
        if into == "the full queue":
            gate.record(torch.npu.default_stream())
        own = stream if into == "the full queue" else torch.npu.default_stream()
        with torch.npu.stream(own):
            for _ in range(40):
                nested.launch()
        if into == "another queue":
            gate.record(torch.npu.Stream())

    gate.wait(stream)
    alarm(handler)
    with torch.npu.stream(stream):
        for i in range(9000):  # more than there is room for
            results.append(torch.add(x[: 1 + i % 6], x[: 1 + i % 6], alpha=2 + i % 7))
    torch.npu.synchronize()

    nested.check()
    host = torch.arange(6.0)
    for i, result in enumerate(results):
        part = host[: 1 + i % 6]
        assert result.cpu().equal(torch.add(part, part, alpha=2 + i % 7)), i


def test_a_handler_launches_while_an_allocation_waits_for_memory(python):
    """Memory that another stream still uses comes back when the handler says so."""
    code = """
import signal, torch
MIB = 1 << 20
npu = torch.npu
x = torch.arange(64.0).view(8, 8).npu()
y = torch.add(x, x, alpha=2)
npu.synchronize()
side, gate, found = npu.Stream(), npu.ExternalEvent(), []
large = torch.ones(40 * MIB, dtype=torch.uint8, device="npu")
gate.wait(side)
with npu.stream(side):
    total = large[:10].sum()
large.record_stream(side)
del large
def handler(*_):
    for n in range(1, 9):
        found.append((n, torch.add(x[:n], x[:n], alpha=3)))
    gate.record(npu.default_stream())
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.2)
# There is no room for both: the second waits for the first.
z = torch.add(torch.zeros(10 * MIB // 4 * 4, device="npu"), 5, alpha=7)
assert found, "the allocation did not wait"
host = torch.arange(64.0).view(8, 8)
for n, result in found:
    assert result.cpu().equal(torch.add(host[:n], host[:n], alpha=3)), n
assert z.eq(35).all().item() and total.item() == 10
print("ok")
"""
    result = python(code, NPU_DISPATCH_MEMORY="90M")

    assert result.stdout.strip() == "ok", result.stderr


def test_a_finalizer_launches_while_a_new_call_site_is_noted():
    """Each line is new, and any object that is made may start a collection."""
    nested = Nested("npu")
    nested.calls(nested.there, 0)
    x = torch.arange(6.0).npu()
    names = {"torch": torch, "x": x, "results": []}
    text = "results.append(torch.add(x[:{n}], x[:{n}], alpha={i}))"
    before = gc.get_threshold()
    gc.collect()
    try:
        for i in range(300):
            line = "\n" * i + text.format(n=1 + i % 6, i=i)
            call = compile(line, f"<call {i}>", "exec")
            Cycle(nested.launch)
            gc.set_threshold(1)
            exec(call, names)
            gc.set_threshold(*before)
    finally:
        gc.set_threshold(*before)
    gc.collect()
    torch.npu.synchronize()

    assert len(nested.found) == 300
    nested.check()
    host = torch.arange(6.0)
    for i, result in enumerate(names["results"]):
        part = host[: 1 + i % 6]
        assert result.cpu().equal(torch.add(part, part, alpha=i)), i


@pytest.fixture
def operator(how):
    """An operator whose shape inference calls `within`, in each first call.

    Of a name of its own: what has been inferred of an operator is kept.
    """
    library = torch.library.Library("reentrancy", "FRAGMENT")
    within = []
    name = f"scaled_{how}"
    library.define(f"{name}(Tensor x, Tensor y, float factor) -> Tensor")
    library.impl(name, lambda x, y, factor: x * factor + y, "CPU")

    def shape(x, y, factor):
        for act in within:
            act()
        return torch.empty_like(x)

    torch.library.register_fake(f"reentrancy::{name}", shape, lib=library)
    yield getattr(torch.ops.reentrancy, name), within
    library._destroy()


@pytest.mark.parametrize("how", ["calls", "collects"])
def test_what_shape_inference_runs_may_launch(operator, how):
    """Also calls of the operator that is being launched, which nest in turn."""
    scaled, within = operator
    nested = Nested("npu")
    depth, inner = 0, []

    def launch():
        nonlocal depth
        nested.launch()
        if depth < 3:
            depth += 1
            rows = 2 + len(inner) % 4
            inner.append((rows, scaled(nested.there[:rows], nested.there[:rows], 3.0)))
            depth -= 1

    def collect():
        Cycle(launch)
        gc.collect()

    within.append(launch if how == "calls" else collect)
    results = []
    for i in range(24):
        part = nested.there[: 1 + i % 6, : 1 + i % 8]
        results.append(scaled(part, part, 2.0 + i))
    within.clear()
    torch.npu.synchronize()

    nested.check()
    assert inner
    for rows, result in inner:
        assert result.cpu().equal(nested.host[:rows] * 4)
    for i, result in enumerate(results):
        part = nested.host[: 1 + i % 6, : 1 + i % 8]
        assert result.cpu().equal(part * (2.0 + i) + part), i
