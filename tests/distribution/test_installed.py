"""The source distribution and the wheel, each installed into an empty environment."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
# Where another interpreter's environment must not be found.
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "NPU_"))}
LICENCES = (
    "LICENSE",
    "THIRD_PARTY.md",
    "npu_dispatch/observe/serve/page/uPlot/LICENSE",
)


def run(*command: str | Path, cwd: str | Path = "/", **env: str) -> str:
    path = env.get("PATH", os.environ["PATH"])
    program = shutil.which(command[0], path=path) or command[0]
    done = subprocess.run(
        [str(program), *map(str, command[1:])],
        cwd=cwd,
        env={**CLEAN, **env},
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def source(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    build = (sys.executable, "-m", "build", "--no-isolation", "--sdist")
    run(*build, "-o", folder, ROOT)
    (file,) = folder.glob("*.tar.gz")
    return file


@pytest.fixture(scope="session")
def wheel() -> Path:
    """Built by `make wheel`, from the source distribution."""
    subprocess.run(
        ["make", "-s", "wheel", f"VENV={sys.prefix}"], cwd=ROOT, check=True, timeout=900
    )
    (file,) = (ROOT / "dist").glob("*.whl")
    return file


@pytest.fixture
def environment(tmp_path) -> Path:
    """An empty one, but for torch: hundreds of megabytes, linked instead of loaded."""
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    (site,) = (tmp_path / "venv/lib").glob("python*/site-packages")
    torch = metadata.distribution("torch")
    tops = {Path(file).parts[0] for file in torch.files or ()} - {".."}
    for top in tops:
        (site / top).symlink_to(torch.locate_file(top))
    return tmp_path / "venv/bin"


def tracked_files(*folders: str) -> set[str]:
    listing = ("git", "ls-files", *folders)
    done = subprocess.run(listing, cwd=ROOT, text=True, capture_output=True, check=True)
    return set(done.stdout.split())


def test_the_source_distribution_has_what_a_build_needs(source):
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    tracked = tracked_files("csrc", "npu_dispatch", "tools", "pytest_npu_dispatch")
    assert tracked | {"THIRD_PARTY.md"} <= names
    assert not [n for n in names if n.endswith((".so", ".pyc", ".o"))]
    assert not [n for n in names if n.startswith(("tests/unit", "build", ".venv"))]


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_the_wheel_has_the_package_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    named, _, built_for = wheel.name.split("-")[1].partition("+")
    info = f"npu_dispatch-{named}+{built_for}.dist-info"

    assert f"{built_for}." in f"torch{torch.__version__}"
    tops = {name.split("/")[0] for name in names}
    assert tops <= {"npu_dispatch", "pytest_npu_dispatch", info}
    assert tracked_files("npu_dispatch", "pytest_npu_dispatch") <= set(names)
    for licence in LICENCES:
        assert f"{info}/licenses/{licence}" in names
    (library,) = [n for n in names if n.endswith(".so")]
    assert library.startswith("npu_dispatch/_C.")
    ours = [n for n in names if not n.startswith("npu_dispatch-")]
    assert not [n for n in ours if n.endswith((".cpp", ".cmake")) or "/test_" in n]
    assert "manylinux" in wheel.name


# What the front page says first: how to install, and what to try then.
INSTALL, TRY = (
    re.search(rf"^```{kind}\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)[
        1
    ]
    for kind in ("bash", "python")
)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_the_front_page_holds_in_an_empty_place(wheel, environment, tmp_path: Path):
    """The HOME is empty, and the wheel the only package that is put beside torch."""
    home, program = tmp_path / "home", tmp_path / "program.py"
    home.mkdir()
    program.write_text(TRY)
    here = {"HOME": str(home), "PATH": f"{environment}:/usr/bin:/bin"}
    settings = Path.home() / ".config/pip/pip.conf"
    if settings.is_file():  # which index this machine has
        here["PIP_CONFIG_FILE"] = str(settings)

    run("bash", "-ec", INSTALL, cwd=wheel.parent, **here)

    assert float(run("python", program, **here)) == pytest.approx(1000)
    assert "1 + 1 on npu  2.0" in run("npu-dispatch", "doctor", **here)
    watched = run("npu-dispatch", "run", program, **here)
    assert float(watched) == pytest.approx(1000)
    left = {path.name for path in home.iterdir()}
    assert left <= {".cache"}  # pip's


TRIES = {
    "import torch; print(torch.ones(3, device='npu').sum().item())": "3.0",
    "import npu_dispatch.metrics as m; print(m.NpuCollector.__name__)": "NpuCollector",
    "import npu_dispatch.observe.serve.app as s; s.create_app(); print(1)": "1",
}


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["wheel", "source"])
def test_it_works_in_an_empty_environment(kind, request, environment):
    file = request.getfixturevalue(kind)
    python = environment / "python"
    # What builds is this environment's, as it is for `make build`.
    here = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    run(python, "-m", "pip", "install", "-q", file, PATH=here, CMAKE_GENERATOR="Ninja")

    for code, answer in TRIES.items():
        assert run(python, "-c", code).strip() == answer
    assert "Usage" in run(environment / "npu-dispatch", "--help")
    assert "3.0" not in run(python, "-S", "-c", "print('no site, no device')")
    assert "1 + 1 on npu  2.0" in run(environment / "npu-dispatch", "doctor")
