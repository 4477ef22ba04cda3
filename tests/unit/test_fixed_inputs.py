"""In the gate nothing is drawn that another run would draw otherwise."""

import ast
import re
import sys
from pathlib import Path
from types import ModuleType

from hypothesis import given, settings, strategies as st

TESTS = Path(__file__).resolve().parents[1]
# Searches draw by themselves, print their seed, and run at night or by hand. The
# last one tests that a program is seeded.
LEFT_OUT = (*("search/report.py", "torture/", "mutants/"), "unit/test_zygote.py")
DRAWN = re.compile(
    r"SystemRandom|random_device|urandom|uuid[14]\(|\bsecrets\b|Random\(\)"
    r"|default_rng\(\)|\b(torch|numpy\.random|default_generator)\.seed\(\)|seed\(time"
)
DRAWS = re.compile(
    r"\brandom\.(random|randint|randrange|choice|choices|shuffle|sample|uniform)\("
    r"|\btorch\.(rand|randn|randint|randperm|rand_like|randn_like|bernoulli)\("
)
SEEDS = re.compile(r"manual_seed|\bseed\(|Random\(\w")


def files(*endings: str) -> list[Path]:
    return [
        path
        for path in sorted(TESTS.rglob("*"))
        if path.suffix in endings
        and path != Path(__file__)
        and not path.relative_to(TESTS).as_posix().startswith(LEFT_OUT)
    ]


def test_no_test_asks_the_machine_for_a_random_number():
    found = [
        f"{path.relative_to(TESTS)}:{number}: {line.strip()}"
        for path in files(".py", ".cpp", ".h")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if DRAWN.search(line)
    ]

    assert found == []


def programs(path: Path) -> list[ast.Constant]:
    """Return the texts in a file that are programs of their own."""
    return [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.search(r"^import .*\btorch\b", node.value, re.M)
    ]


# conftest.py seeds the process of the tests, and the zygote its children.
def test_a_program_in_a_new_interpreter_seeds_what_it_draws_from():
    found = [
        f"{path.relative_to(TESTS)}:{program.lineno}"
        for path in files(".py")
        if re.search(r"fresh_python|Spawned|subprocess|ranks", path.read_text())
        for program in programs(path)
        if DRAWS.search(program.value) and not SEEDS.search(program.value)
    ]

    assert found == []


def test_hypothesis_draws_the_same_with_other_modules(monkeypatch, tmp_path):
    drawn: list[list[int]] = []

    @settings(max_examples=100, derandomize=True)
    @given(st.lists(st.integers(), min_size=20))
    def draw(numbers: list[int]) -> None:
        drawn.append(numbers)

    draw()
    before, drawn = drawn, []
    module = ModuleType("constants")
    module.__file__ = str(tmp_path / "constants.py")
    Path(module.__file__).write_text(f"A = {[*range(70_000, 70_020)]}\n")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    draw()

    assert drawn == before
