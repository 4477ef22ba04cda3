"""The service does what its OpenAPI document says, whatever it is asked.

schemathesis makes requests of the document, right and wrong ones, and compares each
answer with it: status, type, and no 5xx that the document does not name.
"""

from __future__ import annotations

from subprocess import PIPE

import pytest
from hypothesis import given, strategies as st
from interpreter import Spawned
from missing import need_module

from npu_dispatch.observe.serve.app import create_app, openapi

pytestmark = pytest.mark.nightly

ADMIN = "0123456789abcdef-admin"
ENDLESS = "/api/v1/events"  # test_service.py reads it
TRAINER = """
import sys, torch
x = torch.ones(8, device="npu")
for _ in range(1000):
    x.add_(1)
torch.npu.synchronize()
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory):
    openapi = need_module("schemathesis").openapi
    start = Spawned(tmp_path_factory.mktemp("served")).start
    with start("-c", TRAINER, stdin=PIPE, stdout=PIPE) as trainer:
        assert trainer.stdout.readline() == "ready\n"
        options = (str(trainer.pid), "--max-rate", "1e9", "--enable-admin")
        command = ("-m", "npu_dispatch", "serve", "--port", "0", *options)
        with start(*command, "--admin-token", ADMIN, stdout=PIPE) as service:
            url = service.stdout.readline().strip()
            yield openapi.from_url(f"{url}api/v1/openapi.json")
            service.kill()
        trainer.kill()


def cases(document, path: str, method: str):
    """Return a strategy of requests, half of them against the document."""
    modes = need_module("schemathesis").GenerationMode
    operation = document[path][method]
    right, wrong = (operation.as_strategy(generation_mode=mode) for mode in modes)
    return st.one_of(right, wrong) if operation.path_parameters else right


@pytest.mark.parametrize(
    ("path", "method"),
    [
        (path, method.upper())
        for path, methods in openapi(create_app().routes)["paths"].items()
        for method in methods
        if path != ENDLESS
    ],
)
def test_answers_are_those_of_the_document(document, path: str, method: str):
    headers = {"Authorization": f"Bearer {ADMIN}"}
    # Parameters that no route has are no mistake: whoever adds one to an address
    # against caches gets an answer.
    known = [need_module("schemathesis").checks.negative_data_rejection]

    @given(case=cases(document, path, method))
    def run(case) -> None:
        case.call_and_validate(headers=headers, excluded_checks=known, timeout=60)
        if "/admin/" in path:
            assert case.call(timeout=60).status_code in (401, 404, 405)

    run()
