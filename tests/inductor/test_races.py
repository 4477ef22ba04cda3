"""The race sanitizer knows what compiled kernels read and write."""

from pathlib import Path

import pytest
import torch
from sanitizer_off import sanitizer_off

from npu_dispatch.npu import _sanitizer

pytestmark = pytest.mark.npu_races("some of the programs do")


@pytest.fixture(autouse=True)
def sanitizer():
    with sanitizer_off():
        torch.npu.empty_cache()
        yield


def fused(x):
    return (x.sin() + 1) * 2


def changed(x):
    x.mul_(2).add_(1)


def found():
    """Kinds and operators of what is reported; all of it is in this file."""
    torch.npu.synchronize()
    reports = _sanitizer.reports()
    for report in reports:
        for side in (report.first, report.second):
            assert side.where is not None
            assert side.where.file == str(Path(__file__)), side.text()
    return [(r.kind, r.first.op, r.second.op) for r in reports]


def watched(size):
    x = torch.ones(size, device="npu")
    torch.npu.synchronize()
    _sanitizer.enable_npu_sanitizer("report")
    return x


@pytest.mark.parametrize("ordered", [True, False], ids=["event", "no event"])
@pytest.mark.parametrize("dynamic", [True, False], ids=["dynamic", "static"])
def test_a_missing_event_between_eager_and_compiled_code(ordered, dynamic):
    reads = torch.compile(fused, dynamic=dynamic)
    writes = torch.compile(changed, dynamic=dynamic)
    reads(torch.ones(64).npu())
    writes(torch.ones(64).npu())
    stream, event = torch.npu.Stream(), torch.npu.Event()
    x = watched((64,))

    x.zero_()
    event.record()
    with torch.npu.stream(stream):
        if ordered:
            stream.wait_event(event)
        y = reads(x)
        event.record()
    if ordered:
        torch.npu.current_stream().wait_event(event)
    writes(x)

    races = found()
    del y
    assert [kind for kind, _, _ in races] == ([] if ordered else ["read/write"] * 2)
    if not ordered:
        (_, eager, reader), (_, reader_too, writer) = races
        assert eager == "aten::zero_"
        assert reader == reader_too == "npu_fused_add_mul_sin_0"
        assert writer.startswith("npu_fused_add")


def test_parts_of_a_tensor_are_apart_where_their_bytes_are():
    writes = torch.compile(changed, dynamic=True)
    stream = torch.npu.Stream()
    x = torch.ones(8, 10, device="npu")
    for part in x[:, :4], x[:4]:
        writes(part)  # a compile waits for the device
    torch.npu.synchronize()
    _sanitizer.enable_npu_sanitizer("report")

    for part, apart in (x[:, :4], x[:, 4:]), (x[:4], x[4:]):
        with torch.npu.stream(stream):
            writes(part)
        apart.zero_()
        assert found() == []
    for part, overlapping in (x[:, :4], x[7:, 3:]), (x[:4], x[3:, 9:]):
        with torch.npu.stream(stream):
            writes(part)
        overlapping.zero_()
        assert found()[-1][0] == "write/write"
        assert found()[-1][2] == "aten::zero_"
        _sanitizer.clear_reports()


@pytest.mark.nightly
def test_a_compiled_training_step_is_clean():
    torch.manual_seed(0)
    layers = torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)
    model = torch.nn.Sequential(*layers).npu()
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    compiled = torch.compile(model)
    x = watched((6, 8))

    for _ in range(3):
        optimizer.zero_grad()
        compiled(x).square().sum().backward()
        optimizer.step()

    assert found() == []
