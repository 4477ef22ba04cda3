"""TORCH_DISTRIBUTED_DEBUG=DETAIL finds what differs before data moves."""

from __future__ import annotations

FACTS = """
import pickle
from npu_dispatch.distributed import dump_flight_recorder
os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
dist.set_debug_level_from_env()
def started():
    rejoin("cpu:gloo,npu:hccl", seconds=60)
    t = torch.ones(4).npu()
    dist.all_reduce(t)
    assert t.tolist() == [2.0] * 4, t
    return t

# What agrees runs.
t, whole, out = started(), torch.zeros(8).npu(), torch.zeros(4).npu()
dist.all_gather_into_tensor(whole, t)
assert whole.tolist() == [2.0] * 8
dist.reduce_scatter_tensor(out, whole)
assert out.tolist() == [4.0] * 4
waited(swap(t, out, 1 - rank))
assert out.tolist() == [2.0] * 4
dist.barrier()
dump = pickle.loads(dump_flight_recorder())
assert [c["desc"] for c in dump["pg_config"].values()] == ["default_pg"], dump

for what, theirs in {
    "shape": lambda: dist.all_reduce(torch.ones(2, 2).npu()),
    "dtype": lambda: dist.all_reduce(t.int()),
    "order": lambda: dist.broadcast(t, 0),
}.items():
    t = started()
    # The call itself, in torch's words: the device has not been asked.
    raises(RuntimeError, "Detected mismatch between collectives on ranks",
           (lambda: dist.all_reduce(t)) if rank == 0 else theirs)
    torch.npu.synchronize()
    assert t.tolist() == [2.0] * 4, (what, t)
os._exit(0)
"""


def test_a_mismatch_is_raised_by_the_call_and_its_tensor_is_left_alone(ranks):
    ranks(FACTS)
