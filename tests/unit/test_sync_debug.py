"""Hidden host waits are reported, forbidden and counted, by line."""

import asyncio
import contextlib
import inspect
import warnings

import pytest
import torch
from held_stream import Held, held_stream
from open_waits import released_when_waiting

from npu_dispatch.npu.debugging.host_waits import set_process_rule
from tests.ecosystem.both import in_threads

pytestmark = pytest.mark.filterwarnings("ignore:set_sync_debug_mode is a prototype")
HostSyncError, HostSyncWarning = torch.npu.HostSyncError, torch.npu.HostSyncWarning


@pytest.fixture(autouse=True)
def _default():
    yield
    torch.npu.set_sync_debug_mode("default")


def ready():
    x = torch.arange(8.0).npu()
    torch.npu.synchronize()
    return x


# What waits: how, and the operator and reason that are named.
WAITS = {
    "item": (lambda x: x[0].item(), "aten::_local_scalar_dense (item)"),
    "bool": (lambda x: bool(x[0] > 0), "aten::_local_scalar_dense (item)"),
    "cpu": (lambda x: x.cpu(), "aten::copy_ (copy)"),
    "tolist": (lambda x: x.tolist(), "aten::copy_ (copy)"),
    "equal": (lambda x: torch.equal(x, x), "aten::equal (item)"),
    "nonzero": (lambda x: x.nonzero(), "aten::nonzero (operator)"),
    "masked": (lambda x: x.masked_select(x > 3), "aten::masked_select (operator)"),
    "large pageable copy": (lambda x: torch.zeros(2 << 20).npu(), "aten::copy_ (h2d)"),
}
NO_WAITS = {
    "add": lambda x: x + 1,
    "small copy": lambda x: torch.zeros(3).npu(),
    "pinned copy": lambda x: torch.zeros(2 << 20).pin_memory().npu(non_blocking=True),
    "event": lambda x: torch.npu.current_stream().record_event(),
    "query": lambda x: torch.npu.current_stream().query(),
    "stream": lambda x: torch.npu.Stream().wait_stream(torch.npu.current_stream()),
}
EXPLICIT = {
    "stream": lambda x: torch.npu.current_stream().synchronize(),
    "device": lambda x: torch.npu.synchronize(),
    "event": lambda x: torch.npu.current_stream().record_event().synchronize(),
}


@pytest.mark.parametrize("name", WAITS)
def test_warn_names_operator_reason_and_line(name):
    x = ready()
    call, what = WAITS[name]
    torch.npu.set_sync_debug_mode("warn")

    with pytest.warns(HostSyncWarning) as caught:
        call(x)

    text = str(caught[0].message)
    assert what in text
    line = inspect.getsourcelines(call)[1]
    assert f"{__file__}:{line}" in text or f"{__file__}:{line + 1}" in text
    assert len([w for w in caught if w.category is HostSyncWarning]) == 1


def test_python_shows_one_warning_for_a_line_in_a_loop():
    x = ready()
    torch.npu.set_sync_debug_mode("warn")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(10):
            x.add_(1).sum().item()

    assert len([w for w in caught if w.category is HostSyncWarning]) == 1


@pytest.mark.parametrize("wait", [lambda x: x.cpu(), lambda _: torch.npu.synchronize()])
def test_a_wait_without_a_launch_since_the_last_one_is_not_told_of(wait):
    x = ready()
    torch.npu.set_sync_debug_mode("warn")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x.add_(1)
        wait(x)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert x.tolist() == list(range(1, 9))
        assert not caught
        x.add_(1)
        assert x.tolist() == list(range(2, 10))

    assert [w.category for w in caught] == [HostSyncWarning]


@pytest.mark.parametrize("name", WAITS)
def test_error_refuses_the_wait_and_changes_nothing(name):
    x = ready()
    call, what = WAITS[name]
    torch.npu.set_sync_debug_mode("error")

    with pytest.raises(HostSyncError) as caught:
        call(x)

    assert what in str(caught.value)
    torch.npu.set_sync_debug_mode("default")
    call(x)
    assert x.tolist() == list(range(8))


@pytest.mark.parametrize("name", NO_WAITS)
def test_what_does_not_wait_is_not_caught(name):
    x = ready()
    torch.npu.set_sync_debug_mode("error")

    NO_WAITS[name](x)


def test_error_does_not_wait():
    """The stream stays held: waiting would never end."""
    x = ready()
    refused = pytest.raises(HostSyncError, match="1 q")
    with Held(), torch.npu.sync_guard("error"), refused:
        x[0].item()
    assert x[0].item() == 0


@pytest.mark.parametrize("name", EXPLICIT)
def test_synchronize_is_only_caught_when_asked_for(name):
    x = ready()
    torch.npu.set_sync_debug_mode("error")
    EXPLICIT[name](x)

    torch.npu.set_sync_debug_mode("error", explicit=True)
    with pytest.raises(HostSyncError, match=rf"{name}\.synchronize\(\)"):
        EXPLICIT[name](x)


# By memcpy_and_sync() and stream_synchronize() of c10/cuda/CUDAFunctions.h, which warn
# whatever the size and whether anything is queued.
WAITS_ON_CUDA = {
    **WAITS,
    "small copy": (lambda x: torch.zeros(3).npu(), "aten::copy_ (staged_copy)"),
    "staged": (lambda x: torch.zeros(1 << 18).npu(), "aten::copy_ (staged_copy)"),
    "blocking pinned copy": (
        lambda x: torch.zeros(9).pin_memory().npu(),
        "aten::copy_ (staged_copy)",
    ),
    "other strides": (
        lambda x: x[::2].copy_(torch.zeros(4, dtype=torch.float64)),
        "aten::copy_ (staged_copy)",
    ),
    "new tensor": (
        lambda x: torch.tensor([1, 2], device="npu"),
        "aten::copy_ (staged_copy)",
    ),
    "index": (lambda x: x[torch.tensor([1, 2])], "(staged_copy)"),
    "stream": (EXPLICIT["stream"], "stream.synchronize() (stream_sync)"),
}
NO_WAITS_ON_CUDA = {
    **NO_WAITS,
    "small copy": lambda x: torch.zeros(3).npu(non_blocking=True),
    "device": EXPLICIT["device"],
    "new event": EXPLICIT["event"],
}


@pytest.mark.parametrize("name", WAITS_ON_CUDA)
def test_what_waits_on_cuda_is_caught_as_there_each_time(name):
    x = ready()
    call, what = WAITS_ON_CUDA[name]
    set_process_rule("warn", as_cuda=True)
    for _ in range(2):  # nothing need be launched between them
        with pytest.warns(HostSyncWarning, match="called a synchronizing ") as told:
            call(x)
        assert len(told) == 1
        assert what in str(told[0].message)

    set_process_rule("error", as_cuda=True)
    with pytest.raises(HostSyncError, match="called a synchronizing "):
        call(x)

    set_process_rule("default")
    call(x)


@pytest.mark.parametrize("name", NO_WAITS_ON_CUDA)
def test_what_does_not_wait_on_cuda_is_not_caught_as_there(name):
    x = ready()
    set_process_rule("error", as_cuda=True)

    NO_WAITS_ON_CUDA[name](x)


REDIRECTED = """
import warnings
import torch

def caught():
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        torch.zeros(3).cuda()
        torch.cuda.current_stream().synchronize()
    return sum("called a synchronizing" in str(w.message) for w in found)

torch.cuda.init()
warnings.simplefilter("ignore")
torch.cuda.set_sync_debug_mode("warn")
assert caught() == caught() == 2
torch.cuda.set_sync_debug_mode("default")
assert caught() == 0
"""


def test_torch_cudas_mode_is_as_on_cuda_where_torch_cuda_is_ours(tmp_path, python):
    (tmp_path / "program.py").write_text(REDIRECTED)

    done = python.run("-m", "npu_dispatch", "run", "--cuda", "program.py", cwd=tmp_path)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("mode", "number"), [("warn", 1), (2, 2), ("default", 0)])
def test_modes_have_names_and_numbers(mode, number):
    torch.npu.set_sync_debug_mode(mode)

    assert torch.npu.get_sync_debug_mode() == number


@pytest.mark.parametrize("mode", ["loud", 3, -1])
def test_other_modes_are_refused(mode):
    torch.npu.set_sync_debug_mode("warn")

    with pytest.raises(RuntimeError, match="warn"):
        torch.npu.set_sync_debug_mode(mode)

    assert torch.npu.get_sync_debug_mode() == 1


def test_a_guard_ends_with_its_block_and_may_allow():
    x = ready()
    with torch.npu.sync_guard("error"):
        with torch.npu.allow_sync("logging"):
            assert x[1].item() == 1
        with pytest.raises(HostSyncError):
            x[1].item()
    assert x[1].item() == 1


def test_allow_sync_wants_a_reason():
    with pytest.raises(ValueError, match="why"):
        torch.npu.allow_sync("")


def test_a_guard_concerns_its_thread_only():
    x = ready()
    found = []
    with torch.npu.sync_guard("error"):
        in_threads(lambda: found.append(x[2].item()))

    assert found == [2]


def test_a_guard_concerns_its_asyncio_task_only():
    x = ready()

    async def guarded(entered, leave):
        with torch.npu.sync_guard("error"):
            entered.set()
            await leave.wait()
            with pytest.raises(HostSyncError):
                x[3].item()

    async def main():
        entered, leave = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(guarded(entered, leave))
        await entered.wait()
        value = x[3].item()
        leave.set()
        await task
        return value

    assert asyncio.run(main()) == 3


def test_a_warning_made_an_error_leaves_the_device_usable():
    x = ready()
    torch.npu.set_sync_debug_mode("warn")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(HostSyncWarning):
            x[1].item()
    torch.npu.set_sync_debug_mode("default")

    assert x[1].item() == 1


def test_the_report_has_the_line_and_the_time():
    torch.npu.reset_sync_report()
    x = torch.ones(4).npu()
    for _ in range(3):
        with Held() as held, released_when_waiting("item", held.gate):
            x.sum().item()
    line = inspect.currentframe().f_lineno - 1

    rows = [s for s in torch.npu.sync_report() if f"{__file__}:{line}" in s.where]

    assert [row.reason for row in rows] == ["item"]
    assert rows[0].count == 3
    assert rows[0].seconds > 0


@contextlib.contextmanager
def full_queue():
    """A tensor whose stream's queue is full, and the error of one launch more."""
    x = torch.zeros(2).npu()
    launched, refused = 0, ""
    with held_stream(x) as (stream, gate), torch.npu.stream(stream):
        while not refused:
            try:
                with torch.npu.sync_guard("error", explicit=True):
                    x.add_(1)
                launched += 1
            except HostSyncError as error:
                refused = str(error)
        yield x, gate, launched, refused


def test_a_guard_refuses_to_wait_for_a_full_queue():
    with full_queue() as (x, gate, launched, refused):
        gate.set()
        assert "a launch (full_queue)" in refused
        assert x.tolist() == [launched] * 2


def test_the_report_has_the_waits_for_a_full_queue():
    with full_queue() as (x, gate, launched, _):
        torch.npu.reset_sync_report()
        with released_when_waiting("full_queue", gate):
            x.add_(1)

        [site] = [s for s in torch.npu.sync_report() if s.reason == "full_queue"]
        assert "test_the_report_has_the_waits_for_a_full_queue" in site.where
        assert site.count >= 1
        assert site.seconds > 0
        assert x.tolist() == [launched + 1] * 2


@pytest.mark.parametrize("mode", [1, 2, "warn", "error"])
def test_each_mode_but_the_default_is_called_a_prototype(mode):
    try:
        with pytest.warns(UserWarning, match="prototype") as told:
            torch.npu.set_sync_debug_mode(mode)
            torch.npu.set_sync_debug_mode(mode)
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            torch.npu.set_sync_debug_mode("default")

    assert [w.filename for w in told] == [__file__] * 2


@pytest.fixture
def held():
    with held_stream(torch.ones(2).npu()) as stream_and_gate:
        yield stream_and_gate


DIRECT_WAITS = {
    "wait_stream": lambda direct, stream: direct.wait_stream(stream),
    "wait_event": lambda direct, stream: direct.wait_event(stream.record_event()),
}


@pytest.mark.parametrize("name", DIRECT_WAITS)
def test_the_work_waited_for_may_need_the_interpreter(held, name):
    stream, gate = held
    direct = torch.npu.SyncLaunchStream()
    with released_when_waiting("event_sync", gate):
        DIRECT_WAITS[name](direct, stream)

    assert gate.is_set()
    assert stream.query()


@pytest.mark.parametrize("name", DIRECT_WAITS)
def test_a_guard_refuses_the_wait(held, name):
    stream, gate = held
    direct = torch.npu.SyncLaunchStream()

    with (
        torch.npu.sync_guard("error", explicit=True),
        pytest.raises(torch.npu.HostSyncError, match="a SyncLaunchStream's wait"),
    ):
        DIRECT_WAITS[name](direct, stream)

    assert not gate.is_set()
    assert not stream.query()


def test_the_report_has_the_wait(held):
    stream, gate = held
    torch.npu.reset_sync_report()
    with released_when_waiting("event_sync", gate):
        torch.npu.SyncLaunchStream().wait_stream(stream)

    [site] = torch.npu.sync_report()
    assert site.reason == "event_sync"
    assert "test_the_report_has_the_wait" in site.where


def test_what_is_done_is_not_waited_for():
    stream = torch.npu.Stream()
    stream.synchronize()
    with torch.npu.sync_guard("error", explicit=True):
        torch.npu.SyncLaunchStream().wait_stream(stream)
