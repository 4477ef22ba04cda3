"""The simulation of many ranks agrees with the formulas of its algorithms."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

_FILE = Path(__file__).resolve().parents[2] / "tools" / "scale.py"


@pytest.fixture(scope="module")
def scale():
    spec = importlib.util.spec_from_file_location("tools_scale", _FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.mark.parametrize("n", [1, 2, 3, 8, 17, 256])
@pytest.mark.parametrize("size", [4, 1 << 20])
def test_equal_links_take_what_the_formulas_say(scale, n: int, size: int):
    link = scale.Link(3e-5, 7e-10)
    for run, formula in (
        (scale.ring, scale.ring_formula),
        (scale.mesh, scale.mesh_formula),
        (scale.tree, scale.tree_formula),
    ):
        ranks = scale.Ranks(n, link, link, 1)
        run(ranks, range(n), size)
        wanted = formula(n, size, link)
        if run is scale.tree and n & (n - 1):  # not full
            assert formula(n / 2, size, link) < ranks.time() <= wanted
        else:
            assert ranks.time() == pytest.approx(wanted), run.__name__


@pytest.mark.parametrize("hosts", [1, 4, 128])
@pytest.mark.parametrize("beta", [0, 8e-9])
def test_a_hierarchy_takes_the_sum_of_its_rings(scale, hosts: int, beta: float):
    across, inside = scale.Link(1e-4, beta), scale.Link(1e-5, 1e-10)
    ranks, size = scale.Ranks(8 * hosts, across, inside, 8), 1 << 20

    scale.hierarchical(ranks, range(8 * hosts), size, 8)

    wanted = scale.hierarchical_formula(8 * hosts, size, across, inside, 8)
    # One ring's alpha passes while another of the host has the link.
    hidden = 2 * (hosts - 1) * across.alpha if beta else 0
    assert wanted - hidden - 1e-9 <= ranks.time() <= wanted + 1e-9


def test_a_tree_of_thousands_takes_a_few_steps(scale):
    link = scale.Link(1e-5, 0)
    ranks = scale.Ranks(4096, link, link, 1)

    scale.tree(ranks, range(4096), 4)

    assert ranks.time() == pytest.approx(2 * 12 * 1e-5)


def test_one_slow_link_sets_the_pace_of_a_ring(scale):
    across, inside = scale.Link(1e-3, 0), scale.Link(1e-6, 0)
    ranks = scale.Ranks(8, across, inside, 4)

    scale.ring(ranks, range(8), 8)

    # A chunk that crosses waits for no other; each of its steps for the last.
    assert 7 * 1e-3 <= ranks.time() <= 14.001 * 1e-3


def test_a_late_rank_makes_the_others_late(scale):
    link = scale.Link(1e-5, 0)
    ranks = scale.Ranks(4, link, link, 1)
    ranks.ready[2] = 1.0

    scale.tree(ranks, range(4), 4)

    # Up to rank 0, and back in two steps.
    assert ranks.time() == pytest.approx(1.0 + 3e-5, abs=1e-9)


def test_hosts_that_are_not_full_are_refused(scale):
    link = scale.Link(1e-5, 0)
    ranks = scale.Ranks(6, link, link, 4)

    with pytest.raises(ValueError, match="6 ranks do not fill hosts of 4"):
        scale.hierarchical(ranks, range(6), 8, 4)
