"""Which operators a run checks: a third that rotates, and those that changed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conformance.changed import changed, operators_named_in, per_operator
from tests.conformance.reached import reached, touches
from tests.conformance.selection import THIRDS, rotating_third, third

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


def git(root: Path, *arguments: str) -> None:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", "-C", root, *who, *arguments], check=True)


def commit(root: Path) -> None:
    git(root, "add", ".")
    git(root, "commit", "-q", "--allow-empty", "-m", "x")


def test_the_thirds_are_everything_once():
    names = [f"op{i}" for i in range(10)]

    parts = [third(names, which) for which in range(THIRDS)]

    assert sorted(name for part in parts for name in part) == sorted(names)
    assert {len(part) for part in parts} == {3, 4}


def test_each_commit_has_another_third(repository):
    seen = []
    for _ in range(THIRDS):
        seen.append(rotating_third(repository))
        commit(repository)

    assert sorted(seen) == list(range(THIRDS))


def test_a_changed_runner_changes_all_forms_and_a_wrapper_its_own():
    before = per_operator(GENERATED)
    runner = per_operator(GENERATED.replace("f.tensor(0)", "f.tensor(1)"))
    wrapper = per_operator(GENERATED.replace("  return out;", "  return (out);"))

    assert list(before) == ["add.Tensor", "add.out"]
    assert [name for name in before if runner[name] != before[name]] == list(before)
    assert [name for name in before if wrapper[name] != before[name]] == ["add.out"]


def test_nothing_changed_in_a_clean_tree(repository):
    assert changed(repository, "HEAD").operators == set()


def test_the_generated_text_of_the_working_tree_is_compared(repository):
    (repository / "csrc/ops/codegen/gen.py").write_text(
        GENERATOR.replace("return out;", "return (out);")
    )

    assert changed(repository, "HEAD").operators == {"add"}


def test_another_text_of_the_generator_that_writes_the_same_changes_nothing(repository):
    (repository / "csrc/ops/codegen/gen.py").write_text(f"# new\n{GENERATOR}")

    assert changed(repository, "HEAD").operators == set()


def test_a_file_written_by_hand_names_its_operators(repository):
    (repository / "csrc/ops/manual/copy.cpp").write_text(
        'm.impl("copy_", TORCH_FN(copy)); m.impl("equal", 1); "no operator"'
    )
    (repository / "csrc/ops/manual/new.cpp").write_text('m.impl("mm", 1);')

    assert changed(repository, "HEAD").operators == {"copy_", "equal", "mm"}


def test_what_all_operators_share_names_none(repository):
    (repository / "csrc/ops/launch.h").write_text("// other\n")

    assert changed(repository, "HEAD").operators == set()


def test_the_base_is_where_the_branch_left_main(repository):
    git(repository, "update-ref", "refs/remotes/origin/main", "HEAD")
    (repository / "csrc/ops/manual/copy.cpp").write_text('m.impl("equal", 1);')
    commit(repository)

    assert changed(repository).operators == {"equal"}


def test_without_an_older_commit_nothing_is_known(repository):
    found = changed(repository)

    assert found.operators == set()
    assert "no older commit" in found.told


def test_a_base_that_is_not_there_is_an_error(repository):
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
