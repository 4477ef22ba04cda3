"""Libraries and extension modules that tests write in C."""

import importlib.util
import subprocess
import sysconfig
from pathlib import Path
from types import ModuleType

import npu_dispatch

__all__ = ["compiled", "loaded"]


def compiled(source: Path, *flags: str, compiler: str = "cc") -> Path:
    """Compile it into a library beside it; warnings are errors."""
    library = source.with_suffix(".so")
    includes = [sysconfig.get_path("include"), npu_dispatch.get_include()]
    subprocess.run(
        [
            *(compiler, source, *(f"-I{i}" for i in includes), *flags),
            *("-Wall", "-Werror", "-shared", "-fPIC", "-pthread", "-o", library),
        ],
        check=True,
    )
    return library


def loaded(library: Path) -> ModuleType:
    """Import an extension module."""
    spec = importlib.util.spec_from_file_location(library.stem, library)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
