"""Those that are asked about a mutant are there."""

from tests.mutants import judges
from tests.search.report import ROOT


def test_the_tests_that_are_asked_exist():
    asked = [path for paths in judges.PYTHON.values() for path in paths.split()]

    assert [path for path in asked if not (ROOT / "tests" / path).exists()] == []
