"""The layer table of the design: who may include or import whom."""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def by_name(layers: dict[float, str]) -> dict[str, float]:
    return {name: layer for layer, names in layers.items() for name in names.split()}


CPP_LAYERS = by_name(
    {
        0: "base",
        1: "driver stats",
        1.5: "placement observe distributed/core",
        2: "taskqueue",
        2.2: "engine",
        2.4: "interop",
        3: "memory plan sanitizer",
        3.5: "graph",  # uses memory
        4: "host",
        4.1: "torch",
        5: "distributed ops",
        6: "python",
    }
)
ATEN_FROM, PYTHON_FROM = 4, 6
PYTHON_LAYERS = by_name(
    {
        -1: "_built drawing words",
        0: "errors config import_alias versions observe",
        0.5: "observe/segment",  # asks config where
        0.7: "sanitizer",
        1: "_C npu",
        2: "aio inductor program testing",
        2.5: "whole_step observe/judge",
        2.6: "observe/trace",
        2.7: "observe/serve",
        2.8: "metrics",
        3: "distributed integrations plan",
        4: "cli pytest_plugin",
        5: "__main__",
    }
)
NPU_ROOMS = by_name(
    {
        0: "runtime",
        1: "streams",
        2: "debugging memory",
        3: "graphs vendor",
        4: "patches",
    }
)
WITHOUT_TORCH = {"errors", "config", "sanitizer", "drawing", "metrics"}
WITHOUT_TORCH |= {"observe", "versions", "words"}
WITHOUT_TORCH |= {f"observe/{room}" for room in ("segment", "judge", "trace", "serve")}
MAX_LINES = 500

CPP_FILES = sorted(path for s in ("*.h", "*.cpp") for path in (ROOT / "csrc").rglob(s))
PYTHON_FILES = sorted((ROOT / "npu_dispatch").rglob("*.py"))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def layer_of(path: str) -> str:
    """Return which entry of the table a file below csrc belongs to."""
    folder, other, *_ = path.split("/")
    return f"{folder}/{other}" if f"{folder}/{other}" in CPP_LAYERS else folder


def headers_too_high(path: Path) -> Iterator[str]:
    folder = layer_of(str(path.relative_to(ROOT / "csrc")))
    level, text = CPP_LAYERS[folder], path.read_text()
    for header in re.findall(r'^\s*#include\s+[<"]([^>"]+)[>"]', text, re.M):
        if header.startswith("csrc/"):
            other = layer_of(header.removeprefix("csrc/"))
            allowed = other == folder or CPP_LAYERS[other] < level
        elif re.match(r"(ATen|c10|torch)/", header):
            allowed = level >= ATEN_FROM
        elif header == "Python.h" or header.startswith("pybind11/"):
            allowed = level >= PYTHON_FROM
        else:
            continue
        if not allowed:
            yield header


def test_cpp_files_include_only_lower_layers():
    wrong = [(name(p), header) for p in CPP_FILES for header in headers_too_high(p)]

    assert wrong == []


def test_the_tables_name_the_rooms_that_exist():
    folders = [ROOT / "csrc", ROOT / "npu_dispatch/npu"]
    of_cpp, of_npu = (
        {path.name for path in folder.iterdir() if path.is_dir()} - {"__pycache__"}
        for folder in folders
    )
    modules = {module_of(path) for path in PYTHON_FILES} - {"__init__"}

    assert of_cpp == {layer for layer in CPP_LAYERS if "/" not in layer}
    assert of_npu == set(NPU_ROOMS)
    assert modules | {"_C", "_built"} == set(PYTHON_LAYERS)


def module_of(path: Path) -> str:
    """Return which entry of the table a file below npu_dispatch belongs to."""
    return python_layer(path.relative_to(ROOT / "npu_dispatch").with_suffix("").parts)


def python_layer(parts: Sequence[str]) -> str:
    pair = "/".join(parts[:2])
    return pair if pair in PYTHON_LAYERS else parts[0]


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name(path)}: relative import"
            if node.module == "npu_dispatch":
                yield from (f"npu_dispatch.{alias.name}" for alias in node.names)
            elif node.module:
                yield node.module


def modules_too_high(path: Path) -> Iterator[str]:
    module = module_of(path)
    for other in imported(path):
        if other.split(".")[0] == "torch" and module in WITHOUT_TORCH:
            yield other
        if not other.startswith("npu_dispatch."):
            continue
        layer = python_layer(other.split(".")[1:])
        if not (
            PYTHON_LAYERS[layer] < PYTHON_LAYERS[module]
            or layer == module
            or {layer, module} == {"_C", "npu"}
            or module == "__main__"
        ):
            yield other


def test_python_files_import_only_lower_layers():
    # The package itself loads the device, and names all that it needs.
    files = [path for path in PYTHON_FILES if module_of(path) != "__init__"]
    wrong = [(name(path), other) for path in files for other in modules_too_high(path)]

    assert wrong == []


def test_a_file_is_short_enough_to_read():
    lines = {
        name(path): len(path.read_text().splitlines())
        for folder in ("csrc", "npu_dispatch", "bench", "examples")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".h", ".cpp", ".py", ".pyi"}
    }

    assert {path: n for path, n in lines.items() if n > MAX_LINES} == {}


def test_only_config_reads_our_environment_variables():
    readers = {
        module_of(path)
        for path in PYTHON_FILES
        if re.search(r"\benviron\b|getenv", path.read_text())
    }

    assert readers <= {"config"}


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(
        ".__init__"
    )


def modules_loaded_by(path: Path, known: set[str]) -> set[str]:
    """Return which of our modules a file's imports load, wherever they stand.

    An import inside a function counts, and so does one for type checkers only:
    either is how a cycle is hidden. What is loaded are the module and the
    packages around it, but for those that the file itself is in.
    """
    loaded = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            each = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in known else node.module for name in each]
        else:
            continue
        for name in names:
            while name in known:
                loaded.add(name)
                name = name.rpartition(".")[0]
    me = dotted(path)
    around = {me.rsplit(".", n)[0] for n in range(me.count(".") + 1)}
    return loaded - around


def test_no_modules_import_each_other_in_a_circle():
    known = {dotted(path) for path in PYTHON_FILES}
    # The package itself registers the device, so it names what it needs.
    waiting = {
        dotted(path): modules_loaded_by(path, known)
        for path in PYTHON_FILES
        if dotted(path) != "npu_dispatch"
    }
    while free := {module for module, needs in waiting.items() if not needs}:
        waiting = {m: needs - free for m, needs in waiting.items() if m not in free}
    # What is left is in a circle, or only imports what is in one.
    while only := waiting.keys() - {m for needs in waiting.values() for m in needs}:
        waiting = {m: needs for m, needs in waiting.items() if m not in only}

    assert not waiting


def test_a_room_of_the_device_imports_only_lower_rooms():
    wrong = []
    for path in (ROOT / "npu_dispatch/npu").glob("*/*.py"):
        for other in imported(path):
            room = other.removeprefix("npu_dispatch.npu").strip(".").split(".")[0]
            if other.startswith("npu_dispatch.npu") and room in NPU_ROOMS:
                same = room == path.parent.name
                if not same and NPU_ROOMS[room] >= NPU_ROOMS[path.parent.name]:
                    wrong.append((name(path), other))

    assert wrong == []
