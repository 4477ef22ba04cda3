"""What a topology says of collectives: against simulated messages, and in itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from npu_dispatch.plan.described import SheetError
from npu_dispatch.plan.network import collectives, topology
from npu_dispatch.plan.network.algorithms import ALGORITHMS, Cost, Group
from npu_dispatch.plan.network.collectives import (
    Link,
    Ranks,
    chain_formula,
    halving_formula,
    hierarchical,
    hierarchical_formula,
    ring,
    ring_formula,
    tree,
    tree_formula,
)
from npu_dispatch.plan.network.topology import KINDS, Topology, load

INSIDE, ACROSS = Link(2e-6, 2e-12), Link(6e-6, 2e-11)


def of(
    hosts: int, per_host: int, links: int = 1, inside: Link = INSIDE
) -> tuple[Group, Ranks]:
    """A group of all ranks of so many hosts, and the same ranks simulated."""
    count = hosts * per_host
    group = Group(
        hosts,
        per_host,
        per_host,
        count,
        inside,
        alone=ACROSS.shared(1 / links),
        together=ACROSS.shared(per_host / links),
    )
    return group, Ranks(count, ACROSS, inside, per_host, links)


def twice(cost: Cost) -> float:
    return 2 * cost.seconds()


@pytest.mark.parametrize("n", [1, 2, 3, 8, 17, 256])
@pytest.mark.parametrize("size", [4, 1 << 20])
def test_equal_links_take_what_the_formulas_say(n: int, size: int):
    for run, formula in (
        (ring, ring_formula),
        (collectives.mesh, collectives.mesh_formula),
        (tree, tree_formula),
    ):
        ranks = Ranks(n, INSIDE, INSIDE, 1)
        run(ranks, range(n), size)
        wanted = formula(n, size, INSIDE)
        if run is tree and n & (n - 1):  # not full
            assert formula((n + 1) // 2, size, INSIDE) < ranks.time() <= wanted
        else:
            assert ranks.time() == pytest.approx(wanted), run.__name__


@pytest.mark.parametrize("size", [4, 1 << 20, 1 << 28])
@pytest.mark.parametrize(
    ("run", "taken", "shapes"),
    [
        (ring, Group.ring_pass, [(1, 8), (4, 1), (3, 5), (8, 8)]),
        (tree, Group.tree_pass, [(1, 8), (4, 1), (4, 2), (16, 8)]),
    ],
)
def test_a_pass_over_hosts_takes_what_its_messages_take(run, taken, shapes, size):
    for hosts, per_host in shapes:
        for inside in (INSIDE, Link(1e-5, 1e-10)):
            group, ranks = of(hosts, per_host, inside=inside)
            run(ranks, range(hosts * per_host), size)
            wanted = pytest.approx(twice(taken(group, size)), rel=1e-9)
            assert ranks.time() == wanted, (hosts, per_host, inside)


def test_a_tree_that_is_not_full_takes_no_longer():
    for hosts in (3, 5, 7):
        group, ranks = of(hosts, 4)
        tree(ranks, range(hosts * 4), 1 << 20)
        assert ranks.time() <= twice(group.tree_pass(1 << 20)) * (1 + 1e-9), hosts


def test_a_late_rank_makes_the_others_late():
    ranks = Ranks(4, INSIDE, INSIDE, 1)
    ranks.ready[2] = 1.0

    tree(ranks, range(4), 0)

    # Up to rank 0, and back in two steps.
    assert ranks.time() == pytest.approx(1.0 + 3 * INSIDE.alpha, abs=1e-9)


def test_a_hosts_links_are_dealt_to_its_ranks():
    across, inside = Link(1e-5, 1e-9), Link(0, 0)
    for links, taken in ((1, 4), (2, 2), (4, 1)):
        ranks = Ranks(8, across, inside, 4, links)

        ranks.round((rank, rank + 4, 1e6) for rank in range(4))

        assert ranks.time() == pytest.approx(1e-5 + taken * 1e-3)


def test_hosts_that_are_not_full_and_have_no_links_are_refused():
    with pytest.raises(ValueError, match="6 ranks do not fill hosts of 4"):
        hierarchical(Ranks(6, INSIDE, INSIDE, 4), range(6), 8, 4)
    with pytest.raises(ValueError, match="4 ranks, 2 of them on each host with 0 link"):
        Ranks(4, Link(0, 0), Link(0, 0), 2, 0)


def double(ranks: Ranks, groups: Sequence[Sequence[int]], size: float) -> None:
    """All-gathers: each rank sends all that it has, and has twice as much."""
    n, step = len(groups[0]), 1
    while step < n:
        parts = min(step, n - step)
        ranks.round(
            (group[i], group[(i - step) % n], parts * size / n)
            for group in groups
            for i in range(n)
        )
        step *= 2


def scatter(ranks: Ranks, group: Sequence[int], size: float) -> None:
    n = len(group)
    step = 1 << (n - 1).bit_length()
    while step := step // 2:
        ranks.round(
            (group[i], group[i + step], min(step, n - i - step) * size / n)
            for i in range(0, n - step, 2 * step)
        )


def hand_on(ranks: Ranks, group: Sequence[int], size: float, pieces: int) -> None:
    n = len(group)
    for step in range(n - 2 + pieces):
        ranks.round(
            (group[i], group[i + 1], size / pieces)
            for i in range(n - 1)
            if 0 <= step - i < pieces
        )


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 100])
def test_doubling_and_scattering_take_what_their_messages_take(n):
    size = 1 << 20
    doubled, scattered = Ranks(n, ACROSS, ACROSS, 1), Ranks(n, ACROSS, ACROSS, 1)

    double(doubled, [range(n)], size)
    scatter(scattered, range(n), size)

    wanted = halving_formula(n, size * (n - 1) / n, ACROSS)
    assert doubled.time() == pytest.approx(wanted, rel=1e-9)
    assert scattered.time() == pytest.approx(wanted, rel=1e-9)


# The best number of pieces is the root of (n - 2) * size * beta / alpha.
@pytest.mark.parametrize(("n", "size", "best"), [(6, 4e6, 2), (2, 4e6, 1), (5, 1, 1)])
def test_a_chain_takes_what_its_messages_take(n, size, best):
    link = Link(1e-3, 2.5e-10)  # 4e6 bytes take as long as alpha
    taken = []
    for pieces in range(1, 9):
        ranks = Ranks(n, link, link, 1)
        hand_on(ranks, range(n), size, pieces)
        taken.append(ranks.time())

    assert min(taken) == taken[best - 1]
    assert min(taken) == pytest.approx(chain_formula(n, size, link), rel=1e-9)


@pytest.mark.parametrize("links", [1, 2, 4])
@pytest.mark.parametrize("hosts", [1, 2, 3, 16, 128])
def test_a_hierarchy_takes_what_its_messages_take(hosts, links):
    group, ranks = of(hosts, 4, links)
    size, every = 1 << 24, [range(4 * i, 4 * i + 4) for i in range(hosts)]
    # One rank's alpha passes while another of the host has the link.
    hidden = 2 * ACROSS.alpha if links < 4 else 0

    for host in every:
        ring(ranks, host, size)  # both its passes: no host waits for another
    for _ in range(2):
        double(ranks, [range(i, 4 * hosts, 4) for i in range(4)], size / 4)
    wanted = twice(group.rings_in_hosts(size)) + twice(group.halves_across(size))
    steps = (hosts - 1).bit_length()
    assert wanted - steps * hidden - 1e-9 <= ranks.time() <= wanted + 1e-9

    # With rings across it takes the sum of its rings, and no less than that.
    by_rings = Ranks(4 * hosts, ACROSS, INSIDE, 4, links)
    hierarchical(by_rings, range(4 * hosts), size, 4)
    if links == 4:
        assert by_rings.time() >= wanted - 1e-9
    if links == 1:
        wanted = hierarchical_formula(4 * hosts, size, ACROSS, INSIDE, 4)
        hidden = 2 * (hosts - 1) * ACROSS.alpha
        assert wanted - hidden - 1e-9 <= by_rings.time() <= wanted + 1e-9


@pytest.mark.parametrize(("hosts", "per_host"), [(1, 5), (3, 1), (3, 4), (8, 8)])
def test_scattering_by_hosts_takes_what_its_messages_take(hosts, per_host):
    group, ranks = of(hosts, per_host)
    size, count = 1 << 20, hosts * per_host

    scatter(ranks, range(0, count, per_host), size)
    for first in range(0, count, per_host):
        scatter(ranks, range(first, first + per_host), size / hosts)

    assert ranks.time() == pytest.approx(group.tree_parts(size).seconds(), rel=1e-9)


def test_chains_of_each_part_take_what_their_messages_take():
    group, ranks = of(6, 4, links=4)
    size = 4 * 4 * ACROSS.alpha / ACROSS.beta  # so that 4 pieces of a part are best

    scatter(ranks, range(4), size)
    ranks.ready = [ranks.time()] * 24  # chains begin when the last part is there
    for place in range(4):
        hand_on(ranks, range(place, 24, 4), size / 4, 4)
    gathered = Ranks(4, ACROSS, INSIDE, 4)
    ring(gathered, range(4), size)  # both its passes, of which hosts need one
    taken = ranks.time() + gathered.time() / 2

    assert taken == pytest.approx(group.chains_across(size).seconds(), rel=1e-9)


def test_all_to_all_takes_what_its_messages_take():
    group, ranks = of(3, 4, links=4)
    n, size = 12, 1 << 20

    ranks.round((i, (i + step) % n, size / n) for i in range(n) for step in range(1, n))

    assert ranks.time() == pytest.approx(group.direct(size).seconds(), rel=1e-9)


def test_all_to_all_by_hosts_takes_what_its_messages_take():
    group, ranks = of(3, 4, links=4)
    size = 1 << 20

    ranks.round(
        (first + i, first + (i + step) % 4, size / 4)
        for first in range(0, 12, 4)
        for i in range(4)
        for step in range(1, 4)
    )
    ranks.round((i, (i + step) % 12, size / 3) for i in range(12) for step in (4, 8))

    wanted = group.direct_by_hosts(size).seconds()
    assert ranks.time() == pytest.approx(wanted, rel=1e-9)


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
    here = load("pcie8+eth25")
    size = 1 << 24
    inside = here.seconds("all_reduce", size, [8, 10, 12, 14])
    strided = here.seconds("all_reduce", size, range(3, 32, 8))

    assert inside[1] == "inside hosts"
    assert strided[1] == "across hosts"
    assert inside == here.seconds("all_reduce", size, [14, 8, 12, 10])
    # Eight groups of equal places share the one link of each host.
    shared = here.seconds("all_reduce", size, range(3, 32, 8), sharing=8)
    assert shared[0] == pytest.approx(8 * strided[0], rel=0.02)
    # Two groups of four ranks of each host do, too.
    halves = [0, 1, 2, 3, 8, 9, 10, 11]
    once, twice = (here.seconds("all_gather", size, halves, sharing=n) for n in (1, 2))
    assert twice[0] - once[0] == pytest.approx(size / 2 / 3.125e9)


def test_hosts_of_which_fewer_ranks_take_part_have_rings_and_trees_alone():
    here, uneven = load("pcie8+eth25"), [0, 1, 2, 8]
    size = 1 << 24

    def seconds(kind: str) -> float:
        return here.seconds(kind, size, uneven)[0]

    part, across, inside = size / 4, 3.125e9, 31.5e9
    assert seconds("all_reduce") == pytest.approx(6 * (3e-5 + part / across))
    # The root may be the rank that is alone on its host.
    assert seconds("scatter") == pytest.approx(
        2 * 5e-6 + 2 * part / inside + 3e-5 + 3 * part / across
    )
    # And each of the three on a host sends across, as far as there may be ranks.
    assert seconds("all_to_all") == pytest.approx(
        2 * (5e-6 + part / inside) + 3 * (3e-5 + 3 * part / across)
    )
    # A hop of the chain may be across, and is counted as if each were.
    chained, _ = here.seconds("broadcast", size, [0, 1, 8, 16])
    assert chained == pytest.approx(chain_formula(4, size, Link(3e-5, 1 / across)))


LINKS = st.builds(Link, st.floats(0, 1e-3), st.floats(0, 1e-8))
TOPOLOGIES = st.builds(
    Topology,
    st.just("t"),
    st.just("s"),
    st.just("d"),
    per_host=st.integers(1, 9),
    inside=LINKS,
    across=LINKS,
    links_across=st.integers(1, 9),
)
RANKS = st.lists(st.integers(0, 40), min_size=2, max_size=20, unique=True)
SIZES = st.floats(0, 1e10)
SHARING = st.integers(1, 9)
KIND = st.sampled_from(KINDS)
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


@pytest.mark.parametrize("name", topology.built_in())
def test_each_topology_of_the_package_loads(name: str):
    with pytest.raises(SheetError, match="no topology 'none': neither a file nor one"):
        load("none")
    here = load(name)

    assert here.source and here.date
    assert (here.across is None) == ("+" not in name)
    for kind in KINDS:
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

    with pytest.raises(SheetError, match=said) as raised:
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


def test_a_thousand_calls_of_a_thousand_ranks_simulate_nothing(monkeypatch):
    def simulated(*args: object) -> None:
        raise AssertionError("a message was simulated")

    monkeypatch.setattr(Ranks, "round", simulated)
    topology._spread.cache_clear()
    here = load("nvl8+ib400")

    for size in range(1000):
        for kind in ALGORITHMS:
            here.seconds(kind, size, range(1024))

    # The hosts of all ranks are counted once, and those of the two that send.
    assert topology._spread.cache_info().misses == 2
