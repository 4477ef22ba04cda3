"""A program that replays a graph after an input of it was freed."""

# Its argument, if any, is the library of a pluggable allocator.
REPLAYED_WITHOUT_INPUT = """
import sys, torch
if len(sys.argv) > 1:
    torch.npu.change_current_allocator(
        torch.npu.NPUPluggableAllocator(sys.argv[1], "my_alloc", "my_free"))
x, y = torch.full((1000,), 4.0, device="npu"), torch.zeros(1000, device="npu")
graph = torch.npu.NPUGraph()
torch.npu.synchronize()
with torch.npu.graph(graph):
    torch.add(x * 2, 1, out=y)
graph.replay()
print(y[0].item())
END
others = [torch.full((1000,), -9.0, device="npu") for _ in range(20)]
torch.npu.synchronize()
try:
    graph.replay()
    print(y[0].item())
except RuntimeError as error:
    print("has been freed at" in str(error))
"""
INPUT_ENDS = {
    "deleted": "del x",
    "set": "x.set_(torch.ones(1000, device='npu'))",
    "resized": "x.untyped_storage().resize_(0)",
}
