"""What torch.profiler tells of a collective: as of one of NCCL, on both rows."""

from __future__ import annotations

CODE = """
import json
from torch.profiler import ProfilerActivity, profile
join("hccl")
group = dist.new_group([0, 1], group_desc="pairs")
t, out = torch.ones(1000).npu(), torch.empty(2000).npu()
half, got = torch.ones(1000).npu().half(), torch.empty(1000).npu().half()
def calls():
    dist.all_reduce(t, async_op=True).wait()
    dist.all_gather_into_tensor(out, t, group=group)
    works = [dist.isend(half, 1 - rank), dist.irecv(got, 1 - rank)]
    for work in works: work.wait()
calls()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as p:
    calls()
p.export_chrome_trace(f"profile{rank}.json")
with open(f"profile{rank}.json") as file:
    events = json.load(file)["traceEvents"]
for event in events:
    event["args"] = event.get("args", {})
by_operator = [e["args"] for e in events if e.get("name") == "record_param_comms"]
kernels = [e for e in events if e.get("name", "").startswith("hccl:")
           and e.get("cat") == "kernel"]
assert len(by_operator) == len(kernels) == 4, (by_operator, kernels)
by_kernel = {e["name"]: e["args"] for e in kernels}
assert {a["Collective name"] for a in by_operator} == {
    name.removeprefix("hccl:") for name in by_kernel}
for name, args in by_kernel.items():
    [operator] = [a for a in by_operator
                  if a["Collective name"] == name.removeprefix("hccl:")]
    for key in ("Seq", "dtype", "In msg nelems", "Out msg nelems",
                "Process Group Ranks"):
        assert args[key] == operator[key], (name, key, args, operator)
    assert args["Process Group Ranks"] == "[0, 1]" and args["Group size"] == 2
    assert operator["Rank"] == rank
reduced = by_kernel["hccl:all_reduce"]
gathered = by_kernel["hccl:all_gather_into_tensor"]
assert (reduced["In msg nelems"], reduced["Out msg nelems"]) == (1000, 1000)
assert (gathered["In msg nelems"], gathered["Out msg nelems"]) == (1000, 2000)
assert reduced["dtype"] == "Float"
assert gathered["Process Group Description"] == "pairs"
sent, received = by_kernel["hccl:send"], by_kernel["hccl:recv"]
assert (sent["In msg nelems"], sent["Out msg nelems"]) == (1000, 0)
assert (received["In msg nelems"], received["Out msg nelems"]) == (0, 1000)
assert sent["dtype"] == "Half"
"""


def test_an_operator_and_a_kernel_tell_group_number_and_sizes(ranks):
    ranks(CODE)
