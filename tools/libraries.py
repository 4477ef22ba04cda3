"""Other people's libraries: an environment in out/compat over this checkout's own.

    python tools/libraries.py EXTRA   installs what an extra of pyproject.toml names

tests/compatibility tries libraries there, and bench/ runs their programs there where
this interpreter has them not.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / "out" / "compat" / "venv"
PYTHON = VENV / "bin" / "python"


def _packages(environment: Path) -> Path:
    (found,) = environment.glob("lib/python3*/site-packages")
    return found


def install(
    requirements: Iterable[str], environment: Path = VENV, *, alone: bool = False
) -> None:
    """Make the environment: the libraries over this checkout's own packages.

    `alone`: without what they require, where that is another torch.
    """
    if not environment.exists():
        venv.create(environment, with_pip=True)
        ours = _packages(Path(sys.executable).parents[1])
        # So that pip finds torch installed, and keeps this build of it.
        host = _packages(environment) / "host.pth"
        host.write_text(f"import site; site.addsitedir({str(ours)!r})")
    command = [environment / "bin" / "python", "-m", "pip", "install", "-q"]
    command += ["--no-deps"] if alone else []
    subprocess.run([*command, *sorted(set(requirements))], check=True)


def python_with(*modules: str) -> str | None:
    """Return an interpreter that can import them: this one, that of VENV, or None."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if not missing:
        return sys.executable
    if VENV.exists() and all((_packages(VENV) / name).exists() for name in missing):
        return str(PYTHON)
    return None


def of_extra(name: str) -> list[str]:
    """Return the requirements of an extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra: list[str] = project["optional-dependencies"][name]
    return extra


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: libraries.py EXTRA")
    install(of_extra(sys.argv[1]))
