"""Import names that stand for other modules, and calls that follow an import.

`import torch.npu.amp` must give npu_dispatch.npu.amp itself, because a second
copy would have its own state and its own classes.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from opcode import opmap
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

# Importing these takes longer than importing this package.
if TYPE_CHECKING:
    from importlib.abc import Loader
    from importlib.metadata import Distribution, DistributionFinder

__all__ = ["add", "after_import", "is_alias", "refused_names", "remove"]


class _Loader:
    """Loads the module that an alias stands for."""

    def __init__(self, real: str) -> None:
        self.real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.real)
        self.own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has just replaced the module's spec by the alias's.
        module.__spec__ = self.own_spec


def _and_then(loader: Any, then: Callable[[], object]) -> None:
    """Have a module's own loader make a call when it has loaded the module."""
    load = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        load(module)
        then()

    loader.exec_module = exec_module


def _distribution(name: str, version: str) -> Distribution:
    """Return what importlib.metadata is to say of an alias's package."""
    from importlib.metadata import Distribution

    class Named(Distribution):
        def read_text(self, filename: str) -> str | None:
            if filename != "METADATA":
                return None
            return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"

        def locate_file(self, path: Any) -> Any:
            raise FileNotFoundError(path)

    return Named()


class _Finder:
    """The finder in sys.meta_path, for modules and for distributions."""

    def __init__(self) -> None:
        self.modules: dict[str, str] = {}
        self.versions: dict[str, str] = {}
        self.afterwards: dict[str, Callable[[], object]] = {}

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        # The name leaves the list, so that the search below finds the module itself.
        if then := self.afterwards.pop(fullname, None):
            spec = importlib.util.find_spec(fullname)
            if spec is not None and spec.loader is not None:
                _and_then(spec.loader, then)
            return spec
        parent = fullname
        while parent not in self.modules:
            parent, dot, _ = parent.rpartition(".")
            if not dot:
                return None
        real = self.modules[parent] + fullname.removeprefix(parent)
        spec = importlib.util.find_spec(real)
        if spec is None:
            return None
        is_package = spec.submodule_search_locations is not None
        loader = cast("Loader", _Loader(real))
        return ModuleSpec(fullname, loader, is_package=is_package)

    def find_distributions(
        self, context: DistributionFinder.Context | None = None
    ) -> Iterator[Distribution]:
        asked = context.name if context is not None else None
        for name, version in self.versions.items():
            if asked is None or asked.replace("-", "_").lower() == name:
                yield _distribution(name, version)


_finder = _Finder()


def _install() -> None:
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, cast("Any", _finder))


def after_import(name: str, then: Callable[[], object]) -> None:
    """Call `then` right after the module is imported; now, if it has been."""
    if name in sys.modules:
        then()
        return
    _install()
    _finder.afterwards[name] = then


def add(alias: str, real: str, version: str | None = None) -> None:
    """Make `import alias` and `import alias.x` give `real` and `real.x`.

    version: what importlib.metadata.version(alias) returns; with None it knows of
    no such package.
    """
    _install()
    _finder.modules[alias] = real
    if version is not None:
        _finder.versions[alias] = version


def remove(alias: str) -> None:
    """Take an alias back, and forget what was imported under it."""
    _finder.modules.pop(alias, None)
    _finder.versions.pop(alias, None)
    for name in list(sys.modules):
        if name == alias or name.startswith(alias + "."):
            del sys.modules[name]


def is_alias(name: str) -> bool:
    """Return whether `name` is one that add() made."""
    return name in _finder.modules


def refused_names(module: str, prefix: str = "") -> Callable[[str], Any]:
    """Return a module's __getattr__, which names the page of the names that exist.

    It raises AttributeError. In `from module import name` it raises ImportError,
    because the interpreter replaces an AttributeError there by its own text. Names
    without `prefix` get the interpreter's message.
    """

    def __getattr__(name: str) -> Any:  # noqa: N807
        if not name.startswith(prefix):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        text = f"{module}.{name} is not supported: docs/torch_npu.md lists the names"
        caller = sys._getframe(1)
        while caller.f_code.co_name == "__getattr__" and caller.f_back:
            caller = caller.f_back  # a module's that calls this one
        imports = caller.f_code.co_code[caller.f_lasti] == opmap["IMPORT_FROM"]
        raise ImportError(text) if imports else AttributeError(text)

    return __getattr__
