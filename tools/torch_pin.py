"""Says which torch a build is for, and which version of the package that makes.

Called by the build backend (pyproject.toml, tool.dynamic-metadata). A build takes
the torch of the environment that it is installed into, as far as the sources know
that version: an extension works with the minor version alone that it was compiled
against. The versions stand in npu_dispatch/versions.py, which is read as text:
building the package must not import it.
"""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).parents[1] / "npu_dispatch"


def _assigned(file: str, name: str) -> Any:
    found = re.search(rf"^{name} = (.+)$", (_PACKAGE / file).read_text(), re.M)
    if found is None:
        raise RuntimeError(f"{_PACKAGE / file} has no line {name} = ...")
    return ast.literal_eval(found[1])


def known() -> tuple[str, ...]:
    """Return a version of torch for each minor one that the sources know."""
    versions: tuple[str, ...] = _assigned("versions.py", "TORCH_VERSIONS")
    return versions


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _installed() -> str | None:
    # pip builds in an environment of its own, but says by `sysconfig` where the other
    # one is.
    for paths in ([sysconfig.get_path("purelib")], None):
        found = {} if paths is None else {"path": paths}
        for torch in importlib.metadata.distributions(name="torch", **found):
            return torch.version
    return None


def version() -> str:
    """Return the version of torch that is built for, without its local part."""
    installed = _installed()
    if installed is None:
        return known()[0]
    if _minor(installed) not in {_minor(one) for one in known()}:
        raise RuntimeError(
            f"torch {installed} is installed; npu_dispatch can be built for "
            f"{', '.join(known())}: install one of these first, or use a virtual "
            "environment without torch"
        )
    return installed.partition("+")[0]


class Provider:
    """The wheel's version, what it needs to run, and what building it needs."""

    @staticmethod
    def dynamic_metadata(
        settings: Mapping[str, Any], project: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the version, and what is added to the field `dependencies`."""
        ours, minor = _assigned("__init__.py", "__version__"), _minor(version())
        return {
            "version": f"{ours}+torch{minor}",
            "dependencies": [f"torch=={minor}.*"],
        }

    @staticmethod
    def get_requires_for_dynamic_metadata(settings: Mapping[str, Any]) -> list[str]:
        """Return what a build in an environment of its own installs first."""
        return [f"torch=={version()}"]
