"""An npu tensor in another process is the same memory, as CUDA's is."""

from __future__ import annotations

import gc
import re
import resource
from pathlib import Path
from typing import ClassVar

import pytest
import sharing_workers
import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader

from npu_dispatch.npu.memory import shared

# A process of its starts without importing torch again.
mp.set_forkserver_preload(["torch"])
WAIT = 60  # seconds; a test that needs them fails
# How a program begins that forks a worker before it uses the device.
FORKED_WORKER = f"""
import sys
sys.path.insert(0, {str(Path(sharing_workers.__file__).parent)!r})
import torch, npu_dispatch, sharing_workers
import torch.multiprocessing as mp
if __name__ == "__main__":
    context = mp.get_context("fork")
    inbox, outbox = context.Queue(), context.Queue()
    child = context.Process(target=sharing_workers.answer, args=(inbox, outbox))
    child.start()
"""


class Peer:
    """A process that applies functions of sharing_workers.py."""

    alive: ClassVar[list[Peer]] = []

    def __init__(self, method: str = "forkserver") -> None:
        context = mp.get_context(method)
        self.inbox, self.outbox = context.Queue(), context.Queue()
        self.process = context.Process(
            target=sharing_workers.answer, args=(self.inbox, self.outbox), daemon=True
        )
        self.process.start()
        self.alive.append(self)

    def __call__(self, name, *tensors):
        self.inbox.put((name, *tensors))
        return self.outbox.get(timeout=WAIT)

    def end(self, order=None):
        self.alive.remove(self)
        self.inbox.put(order)
        self.process.join(WAIT)

    def kill(self):
        self.end(("die",))


@pytest.fixture(autouse=True)
def everybody_lets_go():
    """What the others still have counts as memory of this process."""
    yield
    for other in Peer.alive:
        other("drop_all")
    held_bytes()


@pytest.fixture(scope="module", params=["spawn", "forkserver"])
def peer(request):
    other = Peer(request.param)
    yield other
    other.end()
    assert other.process.exitcode == 0


@pytest.fixture
def second():
    other = Peer()
    yield other
    other.end()


def held_bytes():
    gc.collect()
    torch.npu.ipc_collect()
    return torch.npu.memory_allocated()


def test_both_see_what_either_writes(peer):
    x = torch.arange(1000, dtype=torch.float32, device="npu")

    assert peer("total", x) == 499500
    peer("add_ten", x)
    assert x[:3].tolist() == [10, 11, 12]
    x.zero_()
    assert peer("total", x) == 0


def test_the_address_stays_and_so_do_graphs_and_neighbours(peer):
    x, beside = torch.ones(8, device="npu"), torch.full((8,), 7.0, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = x * 2
    address = y.data_ptr()

    before = peer("total", y.zero_())
    graph.replay()

    assert before == 0 and peer("total", y) == 16
    assert y.data_ptr() == address
    assert beside.tolist() == [7] * 8


def test_queued_work_is_done_before_it_is_seen(peer):
    side = torch.npu.Stream()
    x = torch.zeros(4, device="npu")
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        for _ in range(2000):
            x += 1

    assert peer("total", x) == 8000


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(4, 6, device="npu").t()[1:, ::2],
        lambda: torch.ones(3, 4, device="npu").expand(2, 3, 4),
        lambda: torch.nn.Parameter(torch.ones(3, device="npu")),
        lambda: torch.ones(2, 2, device="npu", requires_grad=True),
        lambda: torch.ones(0, 3, device="npu"),
        lambda: torch.ones((), dtype=torch.int64, device="npu"),
        lambda: torch.tensor([1 + 2j, 3j], device="npu").conj(),
    ],
    ids=["view", "expanded", "parameter", "leaf", "empty", "scalar", "conjugate"],
)
def test_kind_and_shape_come_over(peer, make):
    t = make()
    expected = "npu:0", tuple(t.shape), t.stride(), t.requires_grad, type(t).__name__

    assert peer("is_npu", t) == expected
    assert peer("total", t) == t.sum().item()


def test_sparse_tensors_and_modules_come_over(peer):
    sparse = torch.eye(3, device="npu").to_sparse()

    assert peer("same", sparse).to_dense().tolist() == torch.eye(3).tolist()


def test_views_of_a_storage_share_it_there_too(peer):
    x = torch.zeros(10, device="npu")

    assert peer("share_storage", x[2:], x.view(2, 5))
    assert not peer("share_storage", x, torch.zeros(10, device="npu"))


def test_what_is_sent_back_is_the_storage_itself(peer):
    x = torch.zeros(4, device="npu")

    back = peer("same", x)

    assert back.untyped_storage()._cdata == x.untyped_storage()._cdata


def test_what_another_process_made_is_used_here(peer):
    t = peer("made", 5)

    assert t.device.type == "npu" and (t * 2).tolist() == [0, 2, 4, 6, 8]
    t += 1
    assert peer("total", t) == 15


def test_a_receiver_sends_it_on(peer, second):
    first = torch.ones(4, device="npu")
    theirs = peer("made", 4)

    assert second("total", theirs) == 6
    peer("add_ten", theirs)
    assert second("total", theirs) == 46
    assert second("total", first) == 4


def test_the_sender_keeps_it_until_the_receiver_has_dropped_it(peer):
    before = held_bytes()
    x = torch.ones(1 << 18, device="npu")
    peer("keep", x)
    del x

    assert held_bytes() == before + (1 << 20)
    # Nobody else is given the memory meanwhile.
    torch.zeros(1 << 18, device="npu")
    peer("drop_all")
    assert held_bytes() == before


def test_what_has_come_back_is_free_when_memory_runs_out(python):
    code = (
        FORKED_WORKER
        + """\
    def ask(*what):
        inbox.put(what)
        return outbox.get(timeout=60)
    x = torch.ones(10 << 20, device="npu")  # 40 of 64 MiB
    ask("keep", x)
    del x
    try:
        torch.zeros(10 << 20, device="npu")
    except torch.OutOfMemoryError:
        print("kept")
    ask("drop_all")
    print(torch.zeros(10 << 20, device="npu").sum().item())
    inbox.put(None)
    child.join()
"""
    )
    result = python(code, NPU_DISPATCH_MEMORY="64M")

    assert result.stdout.split() == ["kept", "0.0"]


def test_a_receiver_that_is_killed_has_dropped_it():
    before = held_bytes()
    other = Peer()
    x = torch.ones(1 << 18, device="npu")
    other("keep", x)
    del x
    assert held_bytes() > before

    other.kill()

    assert held_bytes() == before


def test_memory_outlives_its_sender():
    other = Peer()
    t = other("made", 6)
    other.end()

    assert (t + t).tolist() == [0, 2, 4, 6, 8, 10]


def test_nothing_is_left_in_shared_memory_by_a_killed_sender():
    other = Peer()
    t = other("made", 6)
    other.kill()

    assert t.tolist() == [0, 1, 2, 3, 4, 5]
    # Names of ours and of torch's have their maker in them. The tensor is mapped, and
    # needs no name any more.
    makers = [
        re.match(r"(?:npu_event-|torch_)(\d+)", path.name)
        for path in Path("/dev/shm").iterdir()
    ]
    assert other.process.pid not in [int(maker[1]) for maker in makers if maker]


def test_a_sender_that_ended_too_early_is_named():
    context = mp.get_context("forkserver")
    queue = context.Queue()
    other = context.Process(target=sharing_workers.send_and_end, args=(queue,))
    other.start()
    other.join(WAIT)

    with pytest.raises(RuntimeError, match=f"process {other.pid} sent .* ended before"):
        queue.get(timeout=WAIT)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_tensor_is_an_argument_of_a_process(method):
    context = mp.get_context(method)
    x, queue = torch.zeros(3, device="npu"), context.Queue()
    other = context.Process(target=sharing_workers.add_one_to, args=(x, queue))
    other.start()

    assert queue.get(timeout=WAIT) == "done"
    other.join(WAIT)
    assert x.tolist() == [1, 1, 1]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_loaders_workers_return_device_tensors(method):
    loader = DataLoader(
        sharing_workers.OnDevice(),
        batch_size=4,
        num_workers=2,
        multiprocessing_context=method,
    )

    batches = list(loader)

    assert [b.device.type for b in batches] == ["npu", "npu"]
    assert torch.cat(batches)[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 6, 7]


def test_a_module_is_trained_by_two_processes(peer):
    model = torch.nn.Linear(3, 2).npu()
    model.share_memory()

    for parameter in model.parameters():
        peer("add_ten", parameter)

    assert all(p.min() > 5 for p in model.parameters())
    assert all(p.is_shared() for p in model.parameters())


def test_an_interprocess_event_goes_with_it(peer):
    x, event = torch.zeros(4, device="npu"), torch.npu.Event(interprocess=True)

    peer("record", event, x)
    torch.npu.current_stream().wait_event(event)

    assert (x + 1).tolist() == [6, 6, 6, 6]


def test_the_fork_of_a_process_that_uses_the_device_is_told():
    torch.ones(1, device="npu")
    context = mp.get_context("fork")
    queue, x = context.Queue(), torch.ones(2, device="npu")
    for target, args in (
        (sharing_workers.use, (x, queue)),
        (sharing_workers.receive, (mp_with(context, x), queue)),
    ):
        child = context.Process(target=target, args=args)
        child.start()
        assert "use the 'spawn' start method" in queue.get(timeout=WAIT)
        child.join(WAIT)

    # It cannot send what it has; its parent, which waits for that, hears of it.
    child = context.Process(target=sharing_workers.send, args=(x, queue))
    child.start()
    with pytest.raises(RuntimeError, match=r"could not send.*'spawn' start method"):
        queue.get(timeout=WAIT)
    child.join(WAIT)


def mp_with(context, tensor):
    queue = context.Queue()
    queue.put(tensor)
    return queue


def test_a_fork_made_before_the_device_was_used_shares_it(python):
    code = (
        FORKED_WORKER
        + """\
    x = torch.ones(3, device="npu")
    inbox.put(("add_ten", x))
    outbox.get(timeout=60)
    inbox.put(None)
    child.join()
    print(x.tolist())
"""
    )
    assert python(code).stdout.strip() == "[11.0, 11.0, 11.0]"


def test_what_cannot_be_sent_says_so(peer):
    grown = torch.ones(2, device="npu", requires_grad=True) * 2
    pool = mp.get_context("spawn").SimpleQueue()

    for error, words, what in (
        (RuntimeError, r"detach\(\)", grown),
        (RuntimeError, "npu storage; try pickling an npu", grown.untyped_storage()),
        (TypeError, r"cannot pickle <torch.npu.Stream", torch.npu.Stream()),
        (TypeError, "interprocess=True", torch.npu.Event()),
    ):
        with pytest.raises(error, match=words):
            pool.put(what)


def test_a_capture_is_no_time_to_send():
    pool = mp.get_context("spawn").SimpleQueue()
    x = torch.ones(4, device="npu")
    graph = torch.npu.NPUGraph()

    with (
        pytest.raises(RuntimeError, match="sending a tensor to another process"),
        torch.npu.graph(graph),
    ):
        pool.put(x)


def test_shared_memory_is_not_resized(peer):
    x = torch.ones(4, device="npu")
    peer("total", x)

    with pytest.raises(RuntimeError, match="not resizable"):
        x.untyped_storage().resize_(64)


def test_an_account_of_what_was_sent_that_has_no_room_keeps_no_descriptor():
    before = len(list(Path("/proc/self/fd").iterdir()))
    room, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, most))
    try:
        with pytest.raises(OSError, match="too large"):
            shared._Ledger()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, most))

    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_threads_that_launch_lose_nothing_while_memory_becomes_shared(python):
    """Neighbours of what is sent: the pages move while they are written."""
    code = """
import threading
import torch, npu_dispatch
import torch.multiprocessing as mp
from torch.multiprocessing.reductions import reduce_tensor
stop, lost = threading.Event(), []
def count(stream):
    with torch.npu.stream(stream):
        mine, n = torch.zeros(16, dtype=torch.int64, device="npu"), 0
        others = [torch.zeros(16, device="npu") for _ in range(3)]
        ready.wait()
        while not stop.is_set():
            for _ in range(50):
                mine += 1
            n += 50
        if mine.tolist() != [n] * 16:
            lost.append((n, mine.tolist()))
streams = [torch.npu.Stream() for _ in range(2)]
ready = threading.Barrier(3)
threads = [threading.Thread(target=count, args=(s,)) for s in streams]
for t in threads:
    t.start()
ready.wait()
# One tensor of each stream's segment.
for s in streams:
    with torch.npu.stream(s):
        reduce_tensor(torch.zeros(16, device="npu"))
stop.set()
for t in threads:
    t.join()
print(lost)
"""
    assert python(code).stdout.strip() == "[]"


def test_the_next_of_the_process_is_not_confused_by_closed_numbers(peer):
    for size in (10, 1 << 20, 5 << 20):
        x = torch.full((size,), 1.0, device="npu")
        assert peer("total", x) == size
        del x
        torch.npu.ipc_collect()
        torch.npu.empty_cache()
