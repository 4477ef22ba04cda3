"""torch.distributed.debug shows the calls of hccl."""

from __future__ import annotations

import sys
import types

from torch.distributed.debug._frontend import Response

PROGRAM = """
import json, urllib.error, urllib.request
from torch._C._distributed_c10d import _WorkerServer
join()
server = _WorkerServer("::", 0)
def ask(arguments=""):
    at = f"http://localhost:{server.port}/handler/dump_nccl_trace_json?{arguments}"
    try:
        with urllib.request.urlopen(at, data=b"") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
"""


def test_torchs_page_is_given_the_calls_and_shows_them(ranks, monkeypatch):
    found = ranks(
        PROGRAM
        + """
t = torch.ones(4).npu()
dist.all_reduce(t)
dist.broadcast(t, 1)
torch.npu.synchronize()
status, done = ask()
assert status == 200 and len(json.loads(done)["entries"]) == 2, done
work = dist.all_reduce(t, async_op=True) if rank == 0 else None
status, text = ask("onlyactive=true")
print(status, text)
if rank == 1:
    dist.distributed_c10d._get_default_store().wait(["asked"])
    dist.all_reduce(t)
else:
    dist.distributed_c10d._get_default_store().set("asked", "")
torch.npu.synchronize()
server.shutdown()
"""
    )
    # What the page's tables are made with, which nothing here needs.
    stub = types.ModuleType("tabulate")
    stub.tabulate = lambda *_, **_more: ""
    monkeypatch.setitem(sys.modules, "tabulate", stub)
    from torch.distributed.debug._debug_handlers import FlightRecorderHandler

    answers = [result.stdout.partition(" ") for result in found]
    responses = [Response(int(status), text) for status, _, text in answers]
    entries = [response.json()["entries"] for response in responses]
    assert [len(each) for each in entries] == [1, 0]
    db = FlightRecorderHandler._build_db(["http://a", "http://b"], responses)

    assert [group.desc for group in db.groups] == ["default_pg"]
    [call] = db.collectives
    assert call.collective_name == "hccl:all_reduce"
    assert call.missing_ranks == {1}
    assert entries[0][0]["name"] == "all_reduce"


def test_a_process_in_no_group_says_so(python):
    done = python(
        PROGRAM.replace("join()", "")
        + """
status, text = ask()
assert status == 404 and "no group" in text, (status, text)
server.shutdown()
"""
    )
    assert not done.returncode, done.stderr
