"""Adds torch, in the one version that this release is built for, to what is needed.

Called by the build backend (pyproject.toml, tool.dynamic-metadata). The version
stands in npu_dispatch/config.py, which is read as text: building the package must
not import it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_CONFIG = Path(__file__).parents[1] / "npu_dispatch" / "config.py"


def requirement() -> str:
    """Return `torch==VERSION`."""
    found = re.search(r'^TORCH_VERSION = "(.+)"$', _CONFIG.read_text(), re.M)
    if found is None:
        raise RuntimeError(f"{_CONFIG} has no line TORCH_VERSION = ...")
    return f"torch=={found[1]}"


class Provider:
    """What the wheel needs to run, and what building it needs."""

    @staticmethod
    def dynamic_metadata(
        settings: Mapping[str, Any], project: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return what is added to the field `dependencies`."""
        return {"dependencies": [requirement()]}

    @staticmethod
    def get_requires_for_dynamic_metadata(settings: Mapping[str, Any]) -> list[str]:
        """Return what a build in an environment of its own installs first."""
        return [requirement()]
