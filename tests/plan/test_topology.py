"""What a topology says of collectives: by hand, against messages, and in itself."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from npu_dispatch.plan import topology
from npu_dispatch.plan.spec import SpecError, built_in
from npu_dispatch.plan.topology import ALGORITHMS, Group, Link, Topology, load

INSIDE, ACROSS = Link(2e-6, 2e-12), Link(6e-6, 2e-11)
# Hosts of 4. On one topology a message costs whatever its size, on the other a byte.
MESSAGES = Topology("t", 4, Link(1, 0), Link(10, 0), links_across=4)
BYTES = replace(MESSAGES, inside=Link(0, 1), across=Link(0, 10))
ETHERNET = Topology("t", 8, Link(5e-6, 1e-10), Link(3e-5, 4e-10), links_across=1)

Messages = list[tuple[int, int, float]]  # of one round: from, to, bytes
Groups = Sequence[Sequence[int]]


def test_links_take_alpha_for_each_message_and_beta_for_each_byte():
    link = Link(1, 2)
    assert link.time(5) == 1 + 5 * 2
    assert link.shared(3).time(5) == 1 + 5 * 6
    assert link.shared(0.5) == link
    assert link.ring(4, 8) == 3 * (1 + 2 * 2)
    assert link.tree(8, 5) == link.tree(5, 5) == 3 * (1 + 5 * 2)
    assert link.ring(1, 8) == link.tree(1, 8) == 0


def test_two_hosts_of_four_ranks_by_hand():
    links = Link(1, 2), Link(10, 20), Link(100, 200)  # inside, alone, together
    group = Group(2, 4, 4, 8, *links)

    assert group.ring_pass(8) == (0, 7 * (10 + 20))
    assert group.tree_pass(8) == (2 * (1 + 8 * 2), 10 + 8 * 20)
    assert group.hierarchy(8) == (3 * (1 + 2 * 2), 100 + 200)
    assert group.direct(8) == (3 * (1 + 2), 4 * (100 + 200))
    # With one rank on the other host.
    assert Group(2, 4, 1, 5, *links).tree_pass(8) == group.tree_pass(8)


@pytest.mark.parametrize(
    ("kind", "by_messages", "by_bytes"),
    [
        ("all_reduce", 2 * (2 * 1 + 2 * 10), 2 * (3 * 4 + 3 * 10)),  # tree, hierarchy
        ("all_gather", 2 * 1 + 2 * 10, 3 * 4 + 3 * 10),
        ("broadcast", 2 * 1 + 2 * 10, 3 * 4 + 3 * 10),
        ("scatter", 2 * 1 + 2 * 10, 3 * 4 + 3 * 10),
        ("all_to_all", 3 * 1 + 12 * 10, 3 * 1 + 12 * 10),
        ("barrier", 2 * (2 * 1 + 2 * 10), 0),
    ],
)
def test_sixteen_ranks_on_four_hosts(kind: str, by_messages: float, by_bytes: float):
    wanted = pytest.approx(by_messages), "across hosts"
    assert MESSAGES.seconds(kind, 16, range(16)) == wanted
    assert BYTES.seconds(kind, 16, range(16))[0] == pytest.approx(by_bytes)


@pytest.mark.parametrize(
    ("kind", "links", "sharing", "wanted"),
    [
        # Four ranks of a host send across at once.
        ("all_reduce", 1, 1, 2 * (12 + 4 * 30)),
        ("all_reduce", 2, 1, 2 * (12 + 2 * 30)),
        ("all_reduce", 4, 2, 2 * (12 + 2 * 30)),
        ("all_to_all", 2, 1, 3 + 2 * 120),
        # One rank of a host does.
        ("send", 1, 3, 3 * 160),
    ],
)
def test_ranks_that_send_across_at_once_share_links(kind, links, sharing, wanted):
    here = replace(BYTES, links_across=links)
    ranks = [4, 0] if kind == "send" else range(16)
    assert here.seconds(kind, 16, ranks, sharing=sharing)[0] == pytest.approx(wanted)


def simulated(
    rounds: Sequence[Messages], per_host: int, inside: Link = INSIDE
) -> float:
    """Return when the last rank is done. A rank sends one message after the other, and
    goes on when it has all that a round sends it."""
    ready: dict[int, float] = defaultdict(float)
    for messages in rounds:
        busy, came = ready.copy(), ready.copy()
        for sender, to, size in messages:
            is_inside = sender // per_host == to // per_host
            link = inside if is_inside else ACROSS
            busy[sender] += link.alpha + size * link.beta
            came[to] = max(came[to], busy[sender])
        for rank in {*busy, *came}:
            ready[rank] = max(busy[rank], came[rank])
    return max(ready.values())


def ring(groups: Groups, size: float) -> list[Messages]:
    n = len(groups[0])
    return [[(g[i - 1], g[i], size / n) for g in groups for i in range(n)]] * (n - 1)


def doubling(groups: Groups, size: float) -> list[Messages]:
    """All-gathers: each rank sends all that it has, and has twice as much."""
    n, rounds = len(groups[0]), []
    for step in powers(n):
        moved = min(step, n - step) * size / n
        rounds.append([(g[i], g[i - step], moved) for g in groups for i in range(n)])
    return rounds


def powers(n: int) -> list[int]:
    return [1 << i for i in range((n - 1).bit_length())]


def of(hosts: int, per_host: int, inside: Link) -> tuple[Group, Groups, Groups]:
    """All ranks of so many hosts, each with a link of its own: those of each host, and
    those of each place in a host."""
    count = hosts * per_host
    group = Group(hosts, per_host, per_host, count, inside, ACROSS, ACROSS)
    of_hosts = [range(i, i + per_host) for i in range(0, count, per_host)]
    return group, of_hosts, [range(i, count, per_host) for i in range(per_host)]


@pytest.mark.parametrize("size", [4, 1 << 20, 1 << 28])
@pytest.mark.parametrize("inside", [INSIDE, Link(1e-5, 1e-10)])
@pytest.mark.parametrize(
    ("hosts", "per_host"), [(1, 8), (4, 1), (4, 2), (16, 8), (3, 5), (5, 4)]
)
def test_formulas_are_what_messages_take(hosts, per_host, inside: Link, size: int):
    group, of_hosts, places = of(hosts, per_host, inside)
    whole = [range(hosts * per_host)]
    for said, rounds in (
        (group.ring_pass, ring(whole, size)),
        (group.hierarchy, ring(of_hosts, size) + doubling(places, size / per_host)),
    ):
        wanted = simulated(rounds, per_host, inside)
        assert said(size).seconds() == pytest.approx(wanted, rel=1e-9), said


def test_a_collective_takes_the_least_of_its_algorithms():
    here = load("nvl8+ib400")
    few, many = range(64), 1 << 28

    assert here.seconds("all_reduce", 0, few)[0] == pytest.approx(
        2 * (3 * 2e-6 + 3 * 6e-6)  # a tree: steps in hosts, and across
    )
    # Rings in hosts, and the links across used by eight at once.
    assert here.seconds("all_reduce", many, few)[0] == pytest.approx(
        2 * (7 * (2e-6 + many / 8 / 450e9) + 3 * 6e-6 + many / 8 * 7 / 8 / 50e9)
    )
    assert here.seconds("send", many, [0, 1]) == (2e-6 + many / 450e9, "inside hosts")
    seconds, bound_by = here.seconds("send", many, [9, 1])
    assert (seconds, bound_by) == (pytest.approx(6e-6 + many / 50e9), "across hosts")


def test_ranks_say_which_hosts_take_part():
    size = 1 << 24
    inside = ETHERNET.seconds("all_reduce", size, [8, 10, 12, 14])
    strided = ETHERNET.seconds("all_reduce", size, range(3, 32, 8))

    assert inside[1] == "inside hosts"
    assert strided[1] == "across hosts"
    assert inside == ETHERNET.seconds("all_reduce", size, [14, 8, 12, 10])
    # Eight groups of equal places share the one link of each host.
    shared = ETHERNET.seconds("all_reduce", size, range(3, 32, 8), sharing=8)
    assert shared[0] == pytest.approx(8 * strided[0], rel=0.02)
    # Two groups of four ranks of each host do, too.
    halves = [0, 1, 2, 3, 8, 9, 10, 11]
    once, twice = (
        ETHERNET.seconds("all_gather", size, halves, sharing=n)[0] for n in (1, 2)
    )
    assert twice - once == pytest.approx(size / 2 / 2.5e9)


def test_hosts_of_which_fewer_ranks_take_part_have_rings_and_trees_alone():
    size = 1 << 24

    def seconds(kind: str) -> float:
        return ETHERNET.seconds(kind, size, [0, 1, 2, 8])[0]

    part, across, inside = size / 4, 2.5e9, 1e10
    assert seconds("all_reduce") == pytest.approx(6 * (3e-5 + part / across))
    # And each of the three on a host sends across, as far as there may be ranks.
    assert seconds("all_to_all") == pytest.approx(
        2 * (5e-6 + part / inside) + 3 * (3e-5 + 3 * part / across)
    )


LINKS = st.builds(Link, st.floats(0, 1e-3), st.floats(0, 1e-8))
TOPOLOGIES = st.builds(
    Topology,
    st.just("t"),
    per_host=st.integers(1, 9),
    inside=LINKS,
    across=LINKS,
    links_across=st.integers(1, 9),
)
RANKS = st.lists(st.integers(0, 40), min_size=2, max_size=20, unique=True)
SIZES = st.floats(0, 1e10)
SHARING = st.integers(1, 9)
KIND = st.sampled_from([*ALGORITHMS])
UP_TO_ROUNDING = 1 + 1e-12
given_no_new_inputs = settings(max_examples=200, derandomize=True, database=None)


@given_no_new_inputs
@given(TOPOLOGIES, KIND, SIZES, RANKS, SHARING, st.floats(0, 1), st.floats(0, 1))
def test_a_faster_link_is_never_slower(here, kind, size, ranks, sharing, a, b):
    before, _ = here.seconds(kind, size, ranks, sharing=sharing)
    for field in ("inside", "across"):
        link = getattr(here, field)
        faster = replace(here, **{field: Link(link.alpha * a, link.beta * b)})
        after, _ = faster.seconds(kind, size, ranks, sharing=sharing)
        assert after <= before * UP_TO_ROUNDING
    more = replace(here, links_across=here.links_across + 1)
    after, _ = more.seconds(kind, size, ranks, sharing=sharing)
    assert after <= before * UP_TO_ROUNDING


@given_no_new_inputs
@given(TOPOLOGIES, KIND, SIZES, SIZES, RANKS, SHARING)
def test_more_bytes_never_take_less_time(here, kind, size, more, ranks, sharing):
    few, _ = here.seconds(kind, size, ranks, sharing=sharing)
    many, _ = here.seconds(kind, size + more, ranks, sharing=sharing)
    shared, _ = here.seconds(kind, size, ranks, sharing=sharing + 1)
    assert few <= many * UP_TO_ROUNDING
    assert few <= shared * UP_TO_ROUNDING


@given_no_new_inputs
@given(TOPOLOGIES, KIND, SIZES, st.integers(0, 1000))
def test_one_rank_takes_nothing(here, kind, size, rank):
    assert here.seconds(kind, size, [rank]) == (0.0, "inside hosts")


@given_no_new_inputs
@given(TOPOLOGIES, SIZES, RANKS, SHARING)
def test_an_all_reduce_takes_no_less_than_its_halves(here, size, ranks, sharing):
    whole, _ = here.seconds("all_reduce", size, ranks, sharing=sharing)
    for kind in ("reduce_scatter", "all_gather"):
        half, _ = here.seconds(kind, size, ranks, sharing=sharing)
        assert half <= whole * UP_TO_ROUNDING


@given_no_new_inputs
@given(TOPOLOGIES, KIND, SIZES, RANKS)
def test_what_one_host_takes_is_bound_inside(here, kind, size, ranks):
    alone = replace(here, per_host=41, across=None, links_across=0)

    assert alone.seconds(kind, size, ranks)[1] == "inside hosts"


@pytest.mark.parametrize("name", built_in(topology.FOLDER))
def test_each_topology_of_the_package_loads(name: str):
    with pytest.raises(SpecError, match="no topology 'none': neither a file nor one"):
        load("none")
    here = load(name)

    assert (here.across is None) == ("+" not in name)
    for kind in ALGORITHMS:
        assert here.seconds(kind, 1 << 20, range(2))[0] > 0


FILE = """
name = "two racks"
source = "measured here"
date = "2026-11"
per_host = 4

[inside]
alpha_us = 2
gb_per_s = 100

[across]
alpha_us = 10
gb_per_s = 12.5
links = 2
"""


def written(folder: Path, text: str) -> str:
    path = folder / "my.toml"
    path.write_text(text)
    return str(path)


def test_a_file_of_ones_own_is_read_in_its_units(tmp_path: Path):
    here = load(written(tmp_path, FILE))

    assert (here.name, here.per_host, here.links_across) == ("two racks", 4, 2)
    assert here.inside == Link(2e-6, 1e-11)
    assert here.across == Link(1e-5, 8e-11)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("per_host = 4", ""), "per_host: found nothing, expected a whole number"),
        (("alpha_us = 2", "alpha_us = -2"), "inside.alpha_us: found -2, expected a nu"),
        (("gb_per_s = 12.5", "gb_per_s = 0"), "across.gb_per_s: found 0, expected a n"),
        (("links = 2", ""), "across.links: found nothing, expected a whole number abo"),
        (("links = 2", "links = 5"), "across.links: found 5, expected at most per_hos"),
        (("links = 2", "ports = 2"), "across.ports: no such key; expected alpha_us"),
        (("[across]", "[outside]"), "outside: no such key; expected across, date"),
    ],
)
def test_a_bad_file_is_refused_by_key(tmp_path: Path, change, said: str):
    path = written(tmp_path, FILE.replace(*change))

    with pytest.raises(SpecError, match=said) as raised:
        load(path)

    assert path in str(raised.value)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (("all_gather_v", 1, [0, 1]), "found 'all_gather_v', expected one of all_red"),
        (("send", -1, [0, 1]), "found size -1 and sharing 1, expected at least 0"),
        (("send", 1, []), r"ranks: found \(\), expected different ones"),
        (("barrier", 1, [0, 1, 1]), r"ranks: found \(0, 1, 1\), expected different"),
        (("barrier", 1, [0, 8]), "is one host of 8 ranks: found rank 8"),
    ],
)
def test_an_impossible_call_is_refused(call, said: str):
    with pytest.raises(ValueError, match=said):
        load("nvl8").seconds(*call)


def test_the_hosts_of_a_thousand_ranks_are_counted_once():
    topology._spread.cache_clear()
    here = load("nvl8+ib400")

    for size in range(1000):
        for kind in ALGORITHMS:
            here.seconds(kind, size, range(1024))

    assert topology._spread.cache_info().misses == 1
