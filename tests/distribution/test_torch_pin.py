"""Which torch a build takes, and which versions of tools a developer gets."""

import runpy
import sys
import sysconfig
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name as canonical

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))
import requirements

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def provider_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return what the build backend asks, in an environment with that torch."""

    def beside(torch: str):
        info = tmp_path / f"torch-{torch}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: torch\nVersion: {torch}\n"
        )
        monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
        return runpy.run_path(str(ROOT / "tools" / "torch_pin.py"))["Provider"]

    return beside


@pytest.mark.parametrize(
    ("torch", "minor"), [("2.13.0+cpu", "2.13"), ("2.14.1", "2.14"), ("2.14.7", "2.14")]
)
def test_a_build_is_for_the_torch_that_is_there(provider_beside, torch, minor):
    provider = provider_beside(torch)

    told = provider.dynamic_metadata({}, {})
    assert told["dependencies"] == [f"torch=={minor}.*"]
    assert told["version"].endswith(f"+torch{minor}")
    # The very one, since pip's index may have a later patch.
    needed = provider.get_requires_for_dynamic_metadata({})
    assert needed == [f"torch=={torch.partition('+')[0]}"]


def test_a_torch_that_the_sources_do_not_know_is_named(provider_beside):
    with pytest.raises(RuntimeError, match=r"torch 2\.9\.1 is installed.*2\.14\.1"):
        provider_beside("2.9.1").dynamic_metadata({}, {})


LOCK = Path(requirements.__file__).with_name("requirements.lock")


def test_what_pyproject_asks_for_is_locked_at_a_version_that_it_allows():
    lines = LOCK.read_text().splitlines()
    locked = [Requirement(line) for line in lines if not line.startswith("#")]
    wrong = []
    for asked in map(Requirement, requirements.dev()):
        found = [one for one in locked if canonical(one.name) == canonical(asked.name)]
        versions = [next(iter(one.specifier)).version for one in found]
        if not versions or not all(map(asked.specifier.contains, versions)):
            wrong.append(f"{asked}: locked at {versions}; run `make lock`")

    assert not wrong
    assert all(str(one.specifier).startswith("==") for one in locked)
