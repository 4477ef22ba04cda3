"""What other processes hold of a device's memory."""

from __future__ import annotations


def test_free_memory_excludes_what_other_processes_hold(python):
    # Others on the machine hold and let go as they like, but not in every round.
    code = """
import subprocess, sys
import npu_dispatch, torch
torch.npu.init()
child = subprocess.Popen([sys.executable, "-c", '''
import npu_dispatch, torch
while True:
    print(torch.npu.memory_reserved(), flush=True)
    if input() == "hold":
        x = torch.ones(64 << 20, dtype=torch.uint8, device="npu")
        torch.npu.synchronize()
    else:
        x = None
        torch.npu.empty_cache()
'''], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def told(order):
    print(order, file=child.stdin, flush=True)
    return int(child.stdout.readline())
assert int(child.stdout.readline()) == 0
for _ in range(100):
    free = torch.npu.mem_get_info()[0]
    held = told("hold")
    assert held >= 64 << 20
    excluded = free - torch.npu.mem_get_info()[0]
    text = torch.npu.list_gpu_processes()
    assert text.startswith("NPU:0") and str(child.pid) in text
    assert told("let go") == 0
    if excluded == held:
        print("excluded")
        break
child.kill()
"""
    assert python(code).stdout.strip() == "excluded"
