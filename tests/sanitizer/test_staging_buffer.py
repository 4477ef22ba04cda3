"""Pinned memory that the host writes by an array or a pointer while it is copied."""

import threading
import traceback

import pytest
import torch
from sanitizer_off import sanitizer_off

from npu_dispatch.npu import _sanitizer
from tests.races.programs import polled, until

pytestmark = pytest.mark.npu_races("half of the programs do")

FILE = "program.py"
# Nothing holds the copy up: it may be done before the write, which races all the same.
FORM = """\
import asyncio, ctypes, threading
import numpy as np, torch
{made}
a = {taken}  # taken
torch.npu.synchronize()
{copy}  # copy
{order}
{write}
{later}  # found
"""
MADE = """\
h = torch.zeros(20_000, pin_memory=True)
x, y = (torch.empty(20_000, device="npu") for _ in range(2))
here, side = torch.npu.current_stream(), torch.npu.Stream()
early = torch.npu.Event(); early.record()
"""
COPY = "x.copy_(h, non_blocking=True)"
WRITE = "a[7] = 1"
WAIT = "torch.npu.synchronize()"


def queued(stream, to, source):
    with torch.npu.stream(stream):
        to.copy_(source, non_blocking=True)


def program(copy=COPY, order="", write=WRITE, later=WAIT, taken="h.numpy()", made=""):
    return FORM.format(
        made=MADE + made, taken=taken, copy=copy, order=order, write=write, later=later
    )


def line(text, mark):
    lines = text.splitlines()
    return max(n for n, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))


def found(text, mode="raise"):
    """Return the reports, and the line of the program at which it was stopped."""
    names = {"queued": queued, "until": until, "polled": polled}
    with sanitizer_off():
        _sanitizer.enable_npu_sanitizer(mode)
        try:
            exec(compile(text, FILE, "exec"), names)
        except _sanitizer.NPUSanitizerErrors as error:
            inside = traceback.extract_tb(error.__traceback__)
            return error.errors, [f.lineno for f in inside if f.filename == FILE][-1]
        finally:
            names.clear()
        return _sanitizer.reports(), 0


ON_SIDE = "queued(side, x, h)"
POINTER = "(ctypes.c_float * 20_000).from_address({})"
GRAPH = """
graph = torch.npu.NPUGraph()
with torch.npu.graph(graph):
    x.copy_(h, non_blocking=True)
"""
RACY = {
    "numpy": program(),
    "asarray": program(taken="np.asarray(h)"),
    "__array__": program(taken="h.__array__()"),
    "memoryview": program(taken="memoryview(h.numpy())"),
    "data_ptr": program(taken=POINTER.format("h.data_ptr()")),
    "storage": program(taken=POINTER.format("h.untyped_storage().data_ptr()")),
    "a view's array": program(taken="h[5:].numpy()"),
    "a part is copied": program(
        "x[9:].copy_(h[9:], non_blocking=True)", write="a[9] = 1"
    ),
    "small": program("x[:9].copy_(h[:9], non_blocking=True)"),
    "the array is taken later": program(
        "1", order=f"{COPY}  # copy", taken="0"
    ).replace(WRITE, "a = h.numpy()  # taken\n" + WRITE),
    "a function is over": program(
        f"here.submit(lambda: None); here.synchronize(); {COPY}"
    ),
    "a copy back is over": program(
        f"h.copy_(y.fill_(3), non_blocking=True); here.synchronize(); {COPY}"
    ),
    "second copy": program(later="y.copy_(h, non_blocking=True)"),
    "copy to the host": program(later="h.copy_(y, non_blocking=True)"),
    "item": program(later="x[0].item()"),
    "event": program(later="here.record_event().synchronize()"),
    "query": program(later="polled(here)"),
    "await": program(later="asyncio.run(until(here)); y.fill_(0)"),
    "an earlier event": program(order="early.synchronize()"),
    "second stream": program(f"with torch.npu.stream(side): {COPY}"),
    "another stream's wait": program(
        f"with torch.npu.stream(side): {COPY}", order="here.synchronize()"
    ),
    "replay": program("graph.replay()", made=GRAPH),
    "direct stream": program(
        f"with torch.npu.stream(side): {COPY}",
        later="torch.npu.SyncLaunchStream().wait_stream(side); y.sum().item()",
    ),
}


@pytest.mark.parametrize("name", RACY)
def test_a_write_before_the_wait_is_found_with_both_lines(name):
    text = RACY[name]

    [report], stopped = found(text)

    assert report.kind == "host-write"
    if report.second.op.startswith("an array"):
        assert report.second.where.line == line(text, "taken")
    assert report.first.op == "memcpy"
    assert (report.first.where.file, report.second.where.file) == (FILE, FILE)
    assert stopped == line(text, "found")


RIGHT = {
    "stream": program(order="here.synchronize()"),
    "device": program(order="torch.npu.synchronize()"),
    "event": program(order="here.record_event().synchronize()"),
    "query": program(order="polled(here.record_event())"),
    "await": program(order="asyncio.run(until(here))"),
    "item": program(order="x[0].item()"),
    "another stream that has waited": program(
        ON_SIDE, order="here.wait_stream(side); here.synchronize()"
    ),
    "second stream": program(ON_SIDE, order="side.record_event().synchronize()"),
    "replay": program("graph.replay()", order="here.synchronize()", made=GRAPH),
    "blocking": program("x.copy_(h)"),
    "another part": program("x[9:].copy_(h[9:], non_blocking=True)"),
    "read": program(write="a.sum()"),
    "copy back": program(write="h.copy_(y.fill_(3), non_blocking=True)"),
    "copy back before": program(
        "h.copy_(y.fill_(3), non_blocking=True); x.copy_(h, non_blocking=True)",
        order="here.synchronize()",
    ),
    "a function in the stream": program(
        write="here.submit(lambda: a.__setitem__(7, 1)); x.copy_(h, non_blocking=True)"
    ),
    "a function before the copy": program(
        f"here.submit(lambda: over.wait() and a.__setitem__(7, 1)); {COPY}; over.set()",
        write="",
        made="over = threading.Event()",
    ),
    "a function of a replay": program(
        write="graph.replay()",
        made="""
graph = torch.npu.NPUGraph()
with torch.npu.graph(graph):
    torch.npu.current_stream().submit(lambda: a.__setitem__(7, 1))
""",
    ),
    "told by a function": program(
        f"{COPY}; over = threading.Event(); here.submit(over.set)",
        order="over.wait()",
    ),
    "direct stream": program("queued(torch.npu.SyncLaunchStream(), x, h)"),
    "freed": program(write="del a, h; b = torch.ones(20_000, pin_memory=True)"),
    "rounds": program(
        "",
        write="""
for i in range(5):
    a[:] = i
    x.copy_(h, non_blocking=True)
    copied = here.record_event()
    y.add_(x)
    copied.synchronize()
""",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_a_write_that_is_ordered_is_not_found(name):
    assert found(RIGHT[name]) == ([], 0)


def test_each_copy_is_told_of_once_and_the_program_goes_on():
    loop = "\nfor i in range(3):\n    a[:] = i + 1\n    x.copy_(h, non_blocking=True)"

    reports, _ = found(program(write=loop[1:]), "report")

    assert [r.count for r in reports] == [1, 2]  # of the first copy, of the loop's
    told = reports[0].text()
    assert "an array or pointer taken here writes the source on the host\n" in told
    assert f"{FILE}:{line(program(), 'taken')} in <module>\n" in told
    assert f"{FILE}:{line(program(), 'copy')} in <module>\n" in told
    assert "synchronize an event recorded after memcpy" in told


def test_the_hosts_operator_is_told_of_by_itself():
    reports, _ = found(program(write="h.fill_(2)"), "report")

    assert [r.second.op for r in reports] == ["aten::fill_.Scalar"]


def test_memory_is_not_compared_where_the_sanitizer_is_off():
    with sanitizer_off():
        exec(compile(program(), FILE, "exec"), {"torch": torch})
        assert torch.Tensor.data_ptr.__qualname__ == "TensorBase.data_ptr"


def test_threads_with_buffers_of_their_own_find_nothing():
    def work():
        h = torch.zeros(5_000, pin_memory=True)
        a, x = h.numpy(), torch.empty(5_000, device="npu")
        stream = torch.npu.Stream()
        with torch.npu.stream(stream):
            for i in range(50):
                a[:] = i
                x.copy_(h, non_blocking=True)
                stream.synchronize()

    with sanitizer_off():
        _sanitizer.enable_npu_sanitizer("report")
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert _sanitizer.reports() == []


@pytest.mark.parametrize(("wait", "status"), [("0", 66), ("1", 0)])
def test_the_command_says_so_of_a_second_device(
    wait, status, python, child_environment, tmp_path
):
    copy = f"z = torch.empty(20_000, device='npu:1'); z.{COPY[2:]}"
    text = program(copy, f"torch.npu.synchronize({wait})", later="z[0].item()")
    (tmp_path / FILE).write_text(text)

    done = python.run(
        *("-m", "npu_dispatch", "sanitize", FILE),
        env=child_environment(NPU_DISPATCH_DEVICES="2"),
        cwd=tmp_path,
    )

    assert done.returncode == status, done.stderr
    assert ("an array or pointer taken here" in done.stderr) == (status != 0)
