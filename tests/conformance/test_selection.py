"""Which operators a run checks: a third, and those that changed."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.conformance.changed import (
    OPS,
    changed,
    operators_named_in,
    per_operator,
    per_row,
    reached,
    touches,
    without_comments,
)
from tests.conformance.run import parse

ROOT = Path(__file__).resolve().parents[2]
# As csrc/ops/shapes_of_elements.cpp: functions, and the table that names them.
SHAPES = """\
using at::Tensor;
constexpr int64_t n = 1;

int64_t last(Arguments a) {
  return a[n];
}
bool tail_of(Arguments a) {
  if (a.empty()) {
    return false;
  }
  return last(a);  // why
}
// self, bins
bool histc(Arguments a, Shapes& results) {
  return tail(a) && tail_of(a);
}
template <bool kKeeps>
bool like(Arguments a, Shapes& results) {
  return true;
}
bool trace(Arguments a, Shapes& results) {
  return a[n];
}

constexpr NamedShapes kOfRows[] = {
    {"aten::histc", histc},
    {"aten::trace",
     trace},
    {"aten::mode", like<true>},
};

ShapeFunction find(std::string_view name) {
  return &table[0];
}
"""
# As csrc/ops/codegen writes, of two operators that share a runner.
GENERATED = """\
void run_add_out(Frame& f) {
  at::cpu::add_outf(f.tensor(0), f.out(0));
}

const Op op_add_Tensor("aten::add", "Tensor", &run_add_out);
at::Tensor call_add_Tensor(const at::Tensor & self) {
  return call_new(op_add_Tensor, self);
}

const Op op_add_out("aten::add", "out", &run_add_out);
at::Tensor & call_add_out(const at::Tensor & self, at::Tensor & out) {
  return out;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("add.Tensor", TORCH_FN(call_add_Tensor));
  m.impl("add.out", TORCH_FN(call_add_out));
}
"""
# Stands for the generator: gen.py OUTPUT_DIRECTORY SHARDS.
GENERATOR = f"""\
import pathlib, sys
(pathlib.Path(sys.argv[1]) / "ops_00.cpp").write_text({GENERATED!r})
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a generator and a file written by hand, both committed."""
    for name, text in {
        "csrc/ops/codegen/gen.py": GENERATOR,
        "csrc/ops/manual/copy.cpp": 'm.impl("copy_", TORCH_FN(copy_));\n',
        "csrc/ops/launch.h": "// shared\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path)
    return tmp_path


def git(root: Path, *arguments: str, date: str = "") -> None:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    dated = {"GIT_COMMITTER_DATE": date} if date else {}
    subprocess.run(
        ["git", "-C", root, *who, *arguments], check=True, env={**os.environ, **dated}
    )


def commit(root: Path, days: float = 0) -> None:
    """Commit all, as if so many days after a fixed day."""
    when = f"@{1_700_000_000 + int(days * 24 * 3600)} +0000"
    git(root, "add", ".")
    git(root, "commit", "-q", "--allow-empty", "-m", "x", date=when)


def test_the_thirds_are_everything_once_and_a_gate_has_one_of_them_and_one_seed():
    from tests.conformance.session import FIXED_SEED, THIRDS, seed_of, third

    names = [f"op{i}" for i in range(10)]

    assert sorted(n for which in range(THIRDS) for n in third(names, which)) == names
    assert {seed_of(parse([])) for _ in range(5)} == {FIXED_SEED}
    assert len({seed_of(parse(["--all"])) for _ in range(5)}) == 5
    assert seed_of(parse(["--all", "--seed", "7"])) == 7


def test_a_changed_runner_changes_all_forms_and_a_wrapper_its_own():
    before = per_operator(GENERATED)
    runner = per_operator(GENERATED.replace("f.tensor(0)", "f.tensor(1)"))
    wrapper = per_operator(GENERATED.replace("  return out;", "  return (out);"))

    assert list(before) == ["add.Tensor", "add.out"]
    assert [name for name in before if runner[name] != before[name]] == list(before)
    assert [name for name in before if wrapper[name] != before[name]] == ["add.out"]


@pytest.mark.parametrize(
    ("written", "selected"),
    [
        ({}, set()),
        # What the generator of the working tree writes is compared, not its text.
        (
            {"codegen/gen.py": GENERATOR.replace("return out;", "return (out);")},
            {"add"},
        ),
        ({"codegen/gen.py": f"# new\n{GENERATOR}"}, set()),
        # A file written by hand names its operators, also one that is gone.
        (
            {
                "manual/copy.cpp": 'm.impl("copy_", copy); m.impl("equal", 1); "none"',
                "manual/new.cpp": 'm.impl("mm", 1);',
            },
            {"copy_", "equal", "mm"},
        ),
        ({"manual/copy.cpp": None}, {"copy_"}),
        # What all operators share changes everything.
        ({"launch.h": "int shared;\n"}, None),
        ({"launch.h": "// other\n"}, set()),
    ],
)
def test_changed_operators_are_those_of_changed_code(repository, written, selected):
    for name, text in written.items():
        path = repository / OPS / name
        path.unlink() if text is None else path.write_text(text)

    found = changed(repository, "HEAD")

    assert found.everything == (selected is None)
    assert found.operators == (selected or set())


@pytest.mark.parametrize(
    ("old", "new", "selected"),
    [
        ("n = 1;", "n = 2;", {"histc", "trace"}),
        ("tail(a)", "tail(b)", {"histc"}),
        ("return last(a)", "return last(a) > 0", {"histc"}),
        ('"aten::histc", histc', '"aten::histc", trace', {"histc"}),
        ("// why", "// because", set()),
        ("using at", "#include <cmath>\nusing at", set()),
        ("&table[0]", "&table[1]", {"histc", "trace", "mode"}),
        ('{"aten::mode"', '{"aten::sin", like},\n    {"aten::mode"', {"sin"}),
    ],
)
def test_a_changed_function_of_a_row_changes_the_operators_of_the_row(
    repository, old, new, selected
):
    (repository / "csrc/ops/shapes_of_rows.cpp").write_text(SHAPES)
    commit(repository)

    assert old in SHAPES
    (repository / "csrc/ops/shapes_of_rows.cpp").write_text(SHAPES.replace(old, new))

    assert changed(repository, "HEAD").operators == selected


def test_each_function_of_a_shape_table_is_reached_by_a_row():
    found = {
        path.name: per_row(without_comments(path.read_text()))
        for path in (ROOT / OPS).glob("shapes_of_*.cpp")
    }

    # One return: of the look-up in the table. shapes_of_lists.cpp goes by prefixes.
    assert found
    assert not [
        name
        for name, rows in found.items()
        if len(rows) > 1 and rows[""].count("return") != 1
    ]


def test_a_changed_shape_function_is_selected_whichever_third_it_is_in(tmp_path):
    """The function of roll in this tree."""
    from tests.conformance.session import OPERATORS, third

    name = "csrc/ops/shapes_of_elements.cpp"
    text = (ROOT / name).read_text()
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text(text)
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path)
    begins = "bool roll(Arguments a, Shapes& results) {"
    assert text.count(begins) == 1
    (tmp_path / name).write_text(text.replace(begins, f"{begins}\n  ++calls;"))

    found = changed(tmp_path, "HEAD")

    assert found.operators == {"roll"}
    # Which third it is in differs with the operators that a version of torch has.
    thirds = [n for n in range(3) if "roll" in third(OPERATORS, n)]
    assert len(thirds) == 1
    assert touches(reached(OPERATORS["roll"], "npu"), found.operators)


@pytest.mark.parametrize("days", [0.5, 3])
def test_the_base_follows_from_the_commit_alone(tmp_path, repository, days):
    """Not from what origin/main is where it is checked out."""
    (repository / "csrc/ops/manual/copy.cpp").write_text('m.impl("equal", 1);')
    commit(repository, days)
    first = changed(repository)
    git(repository, "update-ref", "refs/remotes/origin/main", "HEAD")

    assert changed(repository) == first
    assert first.operators == ({"copy_", "equal"} if days > 1 else set())


def test_without_an_older_commit_nothing_is_known_and_a_missing_base_is_an_error(
    repository,
):
    found = changed(repository)

    assert found.operators == set()
    assert "no older commit" in found.told
    with pytest.raises(ValueError, match="no commit 'gone'"):
        changed(repository, "gone")


def test_the_beginning_of_names_stands_for_all():
    named = operators_named_in('name.starts_with("aten::_foreach_")')

    assert {"_foreach_add", "_foreach_sqrt_"} <= named
    assert all(name.startswith("_foreach_") for name in named)


@pytest.mark.parametrize(
    ("entry", "operator"),
    [
        ("nn.functional.scaled_dot_product_attention", "_fused_sdp_choice"),
        ("nn.functional.conv2d", "convolution"),
        ("nn.functional.conv2d", "convolution_backward"),
        ("nn.functional.embedding", "embedding_dense_backward"),
        ("sort", "sort"),
    ],
)
def test_entries_come_to_operators_of_other_names(entry, operator):
    from tests.conformance.session import OPERATORS

    names = reached(OPERATORS[entry], "npu")

    assert touches(names, frozenset({operator}))
    assert not touches(names, frozenset({"digamma"}))
