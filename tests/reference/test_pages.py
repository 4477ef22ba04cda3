"""Each variable, route and field that there is is described, and no other."""

import ast
import json
import re
import sys
from pathlib import Path

from starlette.routing import Route
from starlette.testclient import TestClient

sys.path.append(str(Path(__file__).parents[2] / "tools/reference"))
from snapshot_fields import FIELDS

from npu_dispatch.cli.doctor import OUR_NAMES
from npu_dispatch.npu.runtime.alloc_conf import _HONOURED
from npu_dispatch.observe.serve.app import create_app

ROOT = Path(__file__).parents[2]
CPP_FILES = [p for s in ("*.h", "*.cpp") for p in (ROOT / "csrc").rglob(s)]
PYTHON_FILES = [
    path
    for folder in ("npu_dispatch", "pytest_npu_dispatch")
    for path in (ROOT / folder).rglob("*.py")
]
ASKING = ("variable", "config.variable")
LITERAL = re.compile(r'"([A-Z][A-Z0-9_]+)"')
CALL = re.compile(r"\benv_(?:string|int|bytes|flag|choice)\(\s*([^,)]+)")
# What else is spelt so in files whose calls name no literal.
NO_VARIABLES = {"NPUSTATS"}
DESCRIBED = set(
    re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/environment.md").read_text(), re.M)
)


def read_by_the_engine() -> set[str]:
    """Return the names that C++ files ask env.h for."""
    found: set[str] = set()
    for path in CPP_FILES:
        text = path.read_text()
        if path.name in ("env.h", "env.cpp"):
            continue
        assert not re.search(r"\bgetenv\b", text), f"{path}: use csrc/base/env.h"
        for asked in CALL.findall(text):
            # Where a variable has the name, any literal of the file may be it.
            found.update(LITERAL.findall(asked) or LITERAL.findall(text))
    return found - NO_VARIABLES


def read_by_python() -> set[str]:
    """Return the names that config.py looks up, and those that others ask it for."""
    found: set[str] = set()
    for path in PYTHON_FILES:
        text = path.read_text()
        is_config = path == ROOT / "npu_dispatch/config.py"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and is_config:
                found.update(re.findall(r"^[A-Z][A-Z0-9_]+$", str(node.value)))
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ASKING:
                found.update(LITERAL.findall(ast.unparse(node).replace("'", '"')))
    return found - {"TORCH_VERSION", "TORCH_NPU_VERSION"}


def test_each_variable_that_is_read_is_described_and_no_other():
    read = {
        f"{name}N" if name.endswith("_") else name
        for name in read_by_the_engine() | read_by_python()
    }

    assert read == DESCRIBED


def test_the_names_that_doctor_knows_are_those_of_the_page():
    assert set(OUR_NAMES) == {one for one in DESCRIBED if one.startswith("NPU_")}


def test_the_settings_of_the_allocator_are_those_of_the_page():
    page = (ROOT / "docs/memory.md").read_text()
    keys = re.findall(r"^\| (`.*?) \|", page, re.M)
    assert set(re.findall(r"`(\w+)`", "".join(keys))) == _HONOURED.keys()


def test_the_service_describes_all_its_routes():
    app = create_app()
    with TestClient(app, base_url="http://localhost") as client:
        described = client.get("/api/v1/openapi.json").json()

    routes = {
        (route.path, *map(str.lower, route.methods or ()))
        for route in app.routes
        if isinstance(route, Route)  # and no folder of files
    }
    assert {one[0] for one in routes} == described["paths"].keys()
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            assert any(one[0] == path and method in one for one in routes)
            named = {
                p["name"]
                for p in operation.get("parameters", ())
                if p.get("in") == "path"
            }
            assert named == set(re.findall(r"{(\w+)}", path))


# It has waited for a value, a task of it has failed, and a thread of it waits.
BUSY = """
import json, os, threading, torch
from npu_dispatch.observe.judge.rates import Reading
from npu_dispatch.observe.segment.listing import Processes
from npu_dispatch.observe.serve.snapshot import process_values
failed, held, gate = torch.npu.Stream(), torch.npu.Stream(), threading.Event()
rows, number = torch.ones(4, 2).npu(), torch.tensor([9]).npu()
rows.sum().item()
failed.wait_stream(torch.npu.current_stream())
with torch.npu.stream(failed):
    torch.nn.functional.embedding(number, rows)
try:
    failed.synchronize()
except RuntimeError:
    torch.npu.clear_error(failed)
held.submit(lambda: gate.wait())
waiting = threading.Thread(target=held.synchronize, daemon=True)
waiting.start()
with Processes(pid=os.getpid()) as processes:
    while not processes.refresh()[0].host_waits:
        pass
    (view,) = processes.refresh()
    lines = view.reader.waits_by_site()
print(json.dumps(process_values(None, Reading(view, lines), 10.0)))
gate.set()
waiting.join()
"""


def test_the_fields_of_a_process_are_described(python):
    found = json.loads(python(BUSY).stdout)

    assert set(found) == set(FIELDS[""])
    for name in ("verdict", "launch_us", "trend"):
        assert set(found[name]) == set(FIELDS[name])
    for name in ("streams", "lines", "waiting", "errors", "memory"):
        assert set(found[name][0]) == set(FIELDS[f"{name}[]"])
    assert set(found["syncs"]["item"]) == set(FIELDS["syncs[reason]"])
