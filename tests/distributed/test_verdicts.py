"""Faults are planted; from outside one sentence names rank, cause and line."""

import os
import re
import subprocess
from typing import Any, NamedTuple

import pytest
from ranks import HEAD

from npu_dispatch.observe.judge.calls import Rank, Seen, jobs_of, rank_of
from npu_dispatch.observe.judge.flight_recorder import from_segments
from npu_dispatch.observe.judge.rank_verdict import _Job, slowness, verdict

# The network is this machine's, or the one that is named.
START = """
import ctypes, time
if network := sys.argv[4]:
    with open(f"/run/netns/{network}") as of:
        assert ctypes.CDLL(None).setns(of.fileno(), 0) == 0
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    os.environ["NPU_DISPATCH_LINKS"] = "off"  # which no cut link would concern
join(seconds=600)
store = store()
t = torch.ones(4).npu()
dist.all_reduce(t)
torch.npu.synchronize()
def ready():
    print("ready", flush=True)
"""


# By name: the number of ranks, the one that is to be named with its cause, and the
# program. The sentence names the line that is marked HERE, too.
PROGRAMS = r"""
== missing rank: of 3 ranks, 2 is elsewhere
ready()
if rank != 2:
    dist.all_reduce(t)  # the others
    torch.npu.synchronize()
store.wait(["never"])  # HERE
== other order: of 2 ranks, 1 in another order
def first(): dist.all_reduce(t, async_op=True)
def second(): dist.broadcast(t, 0, async_op=True)
ready()
if rank == 1:
    second()
    first()
else:
    first()
    second()
store.wait(["never"])
== other shape: of 2 ranks, 1 different input sizes
ready()
if rank == 1:
    t = torch.ones(5).npu()
    dist.all_reduce(t, async_op=True)  # HERE
else:
    dist.all_reduce(t, async_op=True)
store.wait(["never"])
== slow rank: of 2 ranks, 1 is slow
ready()
while True:
    if rank == 1:
        time.sleep(0.2)  # HERE
    dist.all_reduce(t)
    torch.npu.synchronize()
== stuck teardown: of 2 ranks, 1 cannot end
ready()
if rank == 0:
    dist.all_reduce(t, async_op=True)
    sys.exit()
store.wait(["never"])  # HERE
== dead launcher: of 2 ranks, 1 launcher of .* is dead
ready()
if rank == 1:
    # Ends the calling thread, and it alone.
    torch.npu.current_stream().submit(lambda: ctypes.CDLL(None).syscall(60, 0))  # HERE
dist.all_reduce(t, async_op=True)
store.wait(["never"])
== host stuck in data loading: of 2 ranks, 1 loads data
os.mkfifo(f"{sys.argv[3]}-pipe{rank}")
class Stuck(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, i):
        if rank == 1: open(f"{sys.argv[3]}-pipe{rank}").read()  # HERE
        return i
ready()
for batch in torch.utils.data.DataLoader(Stuck()):
    dist.all_reduce(t)
    torch.npu.synchronize()
== OOM on one rank: of 2 ranks, 1 ran out of device memory
ready()
if rank == 1:
    try:
        big = torch.empty(1 << 50, dtype=torch.uint8, device="npu")
    except torch.OutOfMemoryError:
        store.wait(["never"])  # HERE
dist.all_reduce(t)
torch.npu.synchronize()
== GIL held: of 2 ranks, 1 holds the GIL
def hold():
    ctypes.PyDLL(None).pause()
ready()
if rank == 1:
    seconds = 3
    begin = time.monotonic()
    while time.monotonic() < begin + seconds: pass  # HERE
    hold()
dist.all_reduce(t)
torch.npu.synchronize()
== late because of another group: of 3 ranks, 2 is elsewhere
pairs = [dist.new_group([0, 1]), dist.new_group([1, 2])]
ready()
if rank == 1:
    dist.all_reduce(t, group=pairs[1])
    torch.npu.synchronize()
if rank < 2:
    dist.all_reduce(t, group=pairs[0])
store.wait(["never"])  # HERE
== unsent message: of 2 ranks, 1 rank 0 has been waiting .* in recv from rank 1
ready()
if rank == 0:
    dist.irecv(t, 1)
store.wait(["never"])  # HERE
== stopped: of 2 ranks, 1 is stopped, by a signal or a debugger
ready()
if rank == 1:
    os.kill(os.getpid(), 19)
dist.all_reduce(t)
torch.npu.synchronize()
== a link that is cut: of 2 ranks, 0 the link between ranks .* is cut
ready()
while True:
    dist.all_reduce(t)  # HERE
    torch.npu.synchronize()
"""


class Fault(NamedTuple):
    size: int
    culprit: str
    cause: str
    code: str


def faults() -> dict[str, Fault]:
    found = {}
    for part in PROGRAMS.split("\n== ")[1:]:
        title, _, code = part.partition("\n")
        head = re.fullmatch(r"(.*): of (\d) ranks, (\d) (.*)", title)
        name, size, culprit, cause = head.groups()
        found[name] = Fault(int(size), culprit, cause, code)
    return found


FAULTS = faults()
CUT = FAULTS.pop("a link that is cut")


def said(pids: set[int]) -> str:
    jobs = [j for j in jobs_of(from_segments()) if pids & {d["pid"] for d in j}]
    return verdict(jobs[0]) if jobs else ""


@pytest.fixture
def network():
    """Return a network that has one link, of its own."""
    name = f"npu-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"only root makes networks: {made.stderr.strip()}")
    yield name
    subprocess.run(["ip", "netns", "delete", name], check=True)


def set_link(network: str, state: str) -> None:
    subprocess.run(["ip", "-n", network, "link", "set", "lo", state], check=True)


def is_found(ranks, code: str, fault: Fault) -> None:
    """Return once the sentence names rank, cause and line."""
    text = ""
    lines = (HEAD + START + code).splitlines()
    marked = [i + 1 for i, line in enumerate(lines) if "# HERE" in line]
    pids = {process.pid for process in ranks}
    wanted = [rf"ranks? {fault.culprit}\b", fault.cause]
    wanted += [rf"<string>:{number} in " for number in marked]
    while not all(re.search(each, text) for each in wanted):
        text = said(pids)


@pytest.mark.parametrize(
    "name",
    [
        # On a busy machine another rank may be late, too.
        pytest.param(name, marks=pytest.mark.nightly if name == "slow rank" else ())
        for name in FAULTS
    ],
)
def test_the_sentence_names_rank_cause_and_line(going, name):
    fault = FAULTS[name]
    ranks = going(START + fault.code, fault.size, ("",))

    is_found(ranks, fault.code, fault)


def test_a_link_that_is_cut_is_named(going, network):
    set_link(network, "up")
    ranks = going(START + CUT.code, CUT.size, (network,))
    set_link(network, "down")

    is_found(ranks, CUT.code, CUT)


def job(waited: list[tuple[float, ...]], period: float = 0.2) -> list[dict[str, Any]]:
    """Return the dumps of ranks that waited so many seconds in each of their calls."""

    def call(number: int, seconds: float) -> dict[str, Any]:
        begin = 1 + int(number * period * 1e9)
        return {
            "collective_seq_id": number,
            "is_p2p": False,
            "state": "completed",
            "profiling_name": "hccl:all_reduce",
            **{f"{a}_sizes": [[4]] for a in ("input", "output")},
            **{f"{a}_dtypes": ["Float"] for a in ("input", "output")},
            "process_group": ("0", "default_pg"),
            "time_created_ns": begin,
            "time_discovered_started_ns": begin,
            "all_here_ns": begin + int(seconds * 1e9),
            "ended_ns": begin + int(seconds * 1e9) + 1000,
        }

    ranks = range(len(waited[0]))
    return [
        {
            "rank": rank,
            "pg_config": {"0": {"ranks": str([*ranks])}},
            "entries": [call(n, each[rank]) for n, each in enumerate(waited)],
        }
        for rank in ranks
    ]


def test_a_rank_that_nearly_always_comes_last_is_slow_and_no_other():
    late, other, together = (0.15, 0.0), (0.0, 0.15), (0.0, 0.0)

    assert "rank 1 is slow: the others waited for it in 30 of 30" in slowness(
        job([late] * 30)
    )
    for well in (
        [late, other] * 15,  # in turn
        [late] * 18 + [(0.0, 0.001)] * 12,  # often, and not nearly always
        [together] * 30,
        [late] * 4,  # too few calls
        [late] * 10,  # in too short a time
        [(0.001, 0.0)] * 30,  # it costs them little
    ):
        assert slowness(job(well)) == verdict(job(well)) == "", well


@pytest.mark.parametrize(
    ("called", "says"),
    [
        ([], "has been at a.py:9 in step for 22 s"),
        ([3], "has been at a.py:9 in step for 22 s"),
        ([3, 30], "is at a.py:9 in step"),
    ],
)
def test_a_line_that_is_passed_again_and_again_is_not_told_as_one_stay(called, says):
    second = 10**9
    [any_call], *_ = [rank_of(dump).entries for dump in job([(0.0,)])]
    one = Rank(
        rank=0,
        time_ns=30 * second,
        pg_config={},
        process=Seen(line="a.py:9 in step", line_since_ns=8 * second),
        entries=[any_call._replace(time_created_ns=at * second) for at in called],
    )

    assert _Job([one])._python(0) == f"its Python {says}"
