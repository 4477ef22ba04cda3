"""The simulation of many ranks agrees with the formulas of its algorithms."""

from __future__ import annotations

import pytest

from npu_dispatch.plan.network import collectives
from npu_dispatch.plan.network.collectives import Link, Ranks


@pytest.mark.parametrize("n", [1, 2, 3, 8, 17, 256])
@pytest.mark.parametrize("size", [4, 1 << 20])
def test_equal_links_take_what_the_formulas_say(n: int, size: int):
    link = Link(3e-5, 7e-10)
    for run, formula in (
        (collectives.ring, collectives.ring_formula),
        (collectives.mesh, collectives.mesh_formula),
        (collectives.tree, collectives.tree_formula),
    ):
        ranks = Ranks(n, link, link, 1)
        run(ranks, range(n), size)
        wanted = formula(n, size, link)
        if run is collectives.tree and n & (n - 1):  # not full
            assert formula((n + 1) // 2, size, link) < ranks.time() <= wanted
        else:
            assert ranks.time() == pytest.approx(wanted), run.__name__


@pytest.mark.parametrize("hosts", [1, 4, 128])
@pytest.mark.parametrize("beta", [0, 8e-9])
def test_a_hierarchy_takes_the_sum_of_its_rings(hosts: int, beta: float):
    across, inside = Link(1e-4, beta), Link(1e-5, 1e-10)
    ranks, size = Ranks(8 * hosts, across, inside, 8), 1 << 20

    collectives.hierarchical(ranks, range(8 * hosts), size, 8)

    wanted = collectives.hierarchical_formula(8 * hosts, size, across, inside, 8)
    # One ring's alpha passes while another of the host has the link.
    hidden = 2 * (hosts - 1) * across.alpha if beta else 0
    assert wanted - hidden - 1e-9 <= ranks.time() <= wanted + 1e-9


def test_a_tree_of_thousands_takes_a_few_steps():
    link = Link(1e-5, 0)
    ranks = Ranks(4096, link, link, 1)

    collectives.tree(ranks, range(4096), 4)

    assert ranks.time() == pytest.approx(2 * 12 * 1e-5)


def test_one_slow_link_sets_the_pace_of_a_ring():
    across, inside = Link(1e-3, 0), Link(1e-6, 0)
    ranks = Ranks(8, across, inside, 4)

    collectives.ring(ranks, range(8), 8)

    # A chunk that crosses waits for no other; each of its steps for the last.
    assert 7 * 1e-3 <= ranks.time() <= 14.001 * 1e-3


def test_a_late_rank_makes_the_others_late():
    link = Link(1e-5, 0)
    ranks = Ranks(4, link, link, 1)
    ranks.ready[2] = 1.0

    collectives.tree(ranks, range(4), 4)

    # Up to rank 0, and back in two steps.
    assert ranks.time() == pytest.approx(1.0 + 3e-5, abs=1e-9)


def test_hosts_that_are_not_full_are_refused():
    link = Link(1e-5, 0)
    ranks = Ranks(6, link, link, 4)

    with pytest.raises(ValueError, match="6 ranks do not fill hosts of 4"):
        collectives.hierarchical(ranks, range(6), 8, 4)


def test_a_hosts_links_are_dealt_to_its_ranks():
    across, inside = Link(1e-5, 1e-9), Link(0, 0)
    for links, taken in ((1, 4), (2, 2), (4, 1)):
        ranks = Ranks(8, across, inside, 4, links)

        ranks.round((rank, rank + 4, 1e6) for rank in range(4))

        assert ranks.time() == pytest.approx(1e-5 + taken * 1e-3)


def test_no_ranks_and_no_links_are_refused():
    with pytest.raises(ValueError, match="4 ranks, 2 of them on each host with 0 link"):
        Ranks(4, Link(0, 0), Link(0, 0), 2, 0)
