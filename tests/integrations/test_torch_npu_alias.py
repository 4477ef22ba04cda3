"""Programs written for torch_npu and for torch.cuda run as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ALIAS = {"NPU_DISPATCH_TORCH_NPU_ALIAS": "1"}

# Spelled as accelerate, DeepSpeed and the vendor's examples do it.
TORCH_NPU_PROGRAM = """
import importlib.metadata, importlib.util
import torch
assert importlib.util.find_spec("torch_npu") is not None
import torch_npu
import torch_npu.npu
from torch_npu.npu import amp
from torch_npu.npu.amp import GradScaler, autocast
import torch_npu.amp, torch_npu.profiler, torch_npu.utils, torch_npu.distributed
from torch_npu.contrib import module, Prefetcher
from torch_npu.contrib.function import matmul_transpose
from torch_npu.utils.collect_env import get_cann_version
from torch_npu.profiler.profiler import analyse
from torch_npu.testing.testcase import TestCase
from torch_npu.testing.common_utils import create_common_tensor
import torch.npu.random
import numpy as np
assert torch_npu.npu is torch.npu and torch.npu.amp is amp
assert torch.npu.random.manual_seed is torch.npu.manual_seed
assert torch_npu.__version__ == importlib.metadata.version("torch_npu")
assert hasattr(torch, "npu") and torch.npu.is_available()
torch_npu.npu.set_device("npu:0")
torch_npu.npu.set_compile_mode(jit_compile=False)
torch.npu.config.allow_internal_format = False
torch_npu.npu.manual_seed_all(7)
model = torch.nn.Linear(8, 8).npu()
optimizer = torch_npu.optim.NpuFusedAdamW(model.parameters(), lr=0.1)
scaler = GradScaler()
x, y = torch.randn(16, 8).npu(), torch.randn(16, 8).npu()
losses = []
for _ in range(20):
    optimizer.zero_grad()
    with autocast():
        out = model(torch_npu.npu_format_cast(x, 29))
    assert out.dtype == torch.float16
    loss = (out.float() - y).pow(2).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item())
stream = torch_npu.npu.Stream()
with torch_npu.npu.stream(stream):
    x.record_stream(stream)
    z = x * 2
torch_npu.erase_stream(x, stream)
torch_npu.npu.current_stream().wait_stream(stream)
assert torch.equal(torch.ops.npu.npu_silu(z), torch_npu.npu_silu(z))
assert torch_npu.amp.autocast is autocast
torch_npu.npu.synchronize()
one, two = create_common_tensor([np.float32, 0, (3, 4)], -1, 1)
TestCase().assertRtolEqual(one.numpy(), two.cpu().numpy())
assert torch_npu._C._storage_Use_Count(z.untyped_storage()._cdata) >= 1
print(losses[-1] < losses[0])
"""


def test_a_torch_npu_program_runs_unmodified(python):
    assert python(TORCH_NPU_PROGRAM, **ALIAS).stdout == "True\n"


# What scripts for CUDA are made of, one by one: programs/cuda_idioms.txt.
CUDA_ON_TWO_DEVICES = """
import torch, torch_npu
from torch_npu.contrib import transfer_to_npu
replicated = torch.nn.DataParallel(torch.nn.Linear(4, 2).cuda(), device_ids=[0, 1])
x = torch.ones(6, 4).cuda()
replicated(x).sum().backward()
assert replicated.module.bias.grad.tolist() == [6, 6]
with torch.autocast("cuda", torch.bfloat16):
    assert replicated(x).dtype == torch.bfloat16
summed = torch.nn.parallel.comm.reduce_add([x, x.to("cuda:1")], destination=1)
assert torch.equal(summed.cpu(), 2 * x.cpu()) and summed.get_device() == 1
# What torch imported before the names changed meaning.
@torch.compile(backend="eager")
def compiled(x):
    with torch.cuda.device(1):
        y = torch.ones(4, device="cuda")
    return (x.to(y.device) if x.is_cuda else x) + y, torch.is_autocast_enabled()
y, casts = compiled(x)
assert y.get_device() == 1 and torch.cuda.current_device() == 0 and not casts
with torch.autocast("cuda"):
    assert compiled(x)[1]
"""


def test_a_cuda_program_on_two_devices(python):
    environment = {**ALIAS, "NPU_DISPATCH_DEVICES": "2"}

    python(CUDA_ON_TWO_DEVICES, **environment)


CHECKED_BY_VARIABLE = """
import torch
from torch.cuda._sanitizer import cuda_sanitizer, CUDASanitizerErrors
assert cuda_sanitizer.enabled and torch.npu._sanitizer.is_enabled()
assert torch.utils._python_dispatch._get_current_dispatch_mode() is None
side = torch.cuda.Stream()
x = torch.ones(1000, device="cuda")
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    y = x + 1
torch.cuda.current_stream().wait_stream(side)
(y * 2).sum().item()
try:
    with torch.cuda.stream(side):
        x.add_(1)
    x.mul_(2)
except CUDASanitizerErrors as error:
    print(type(error).__name__)
cuda_sanitizer.disable()
print(torch.npu._sanitizer.is_enabled())
"""


@pytest.mark.parametrize("how", ["-c", "-m"])
def test_the_variable_of_cudas_sanitizer_switches_on_the_npus(
    how: str, fresh_python, tmp_path: Path, child_environment
):
    (tmp_path / "program.py").write_text(CHECKED_BY_VARIABLE)
    what = CHECKED_BY_VARIABLE if how == "-c" else "program"
    env = child_environment(
        NPU_DISPATCH_CUDA="1", TORCH_CUDA_SANITIZER="1", TORCH_NPU_SANITIZER="0"
    )

    result = fresh_python.run(how, what, env=env)

    assert result.stdout.split() == ["NPUSanitizerErrors", "False"], result.stderr


def test_without_being_asked_there_is_no_torch_npu(python):
    code = """
import importlib.util, importlib.metadata
import npu_dispatch
print(importlib.util.find_spec("torch_npu"))
try: importlib.metadata.version("torch_npu")
except importlib.metadata.PackageNotFoundError: print("no version")
"""
    assert python(code).stdout.splitlines() == ["None", "no version"]


def test_installing_the_alias_by_hand_does_not_disable_the_device(python):
    code = """
import npu_dispatch
npu_dispatch.install_torch_npu_alias()
npu_dispatch.install_torch_npu_alias()
npu_dispatch.register()
import torch, torch_npu
print(torch_npu.npu is torch.npu, torch.ones(1, device="npu").item())
"""
    result = python(code)

    assert result.stdout == "True 1.0\n"
    assert "torch_npu is installed" not in result.stderr


def test_the_real_one_is_not_shadowed(python, tmp_path: Path):
    (tmp_path / "torch_npu.py").write_text("whose = 'theirs'")
    code = """
import sys; sys.path.insert(0, ".")
import npu_dispatch
try: npu_dispatch.install_torch_npu_alias()
except RuntimeError as error: print(error)
import torch_npu
print(torch_npu.whose)
"""
    result = python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0", **ALIAS)

    assert result.stdout.splitlines()[-1] == "theirs"
    assert "torch_npu is installed" in result.stdout


def test_a_module_has_one_copy_under_all_its_names(python):
    code = """
import torch, torch_npu
import torch.npu.streams, torch_npu.npu.streams, npu_dispatch.npu.streams
assert torch.npu.streams.Stream is npu_dispatch.npu.streams.Stream
import sys, importlib
names = ("torch.npu.streams", "torch_npu.npu.streams", "npu_dispatch.npu.streams")
assert len({id(sys.modules[name]) for name in names}) == 1
assert torch.npu.streams.__spec__.name == "npu_dispatch.npu.streams"
try: import torch.npu.no_such
except ModuleNotFoundError as error: print(error.name)
"""
    assert python(code, **ALIAS).stdout == "torch.npu.no_such\n"


def test_pytest_lets_conftest_import_it(tmp_path: Path, fresh_python):
    (tmp_path / "conftest.py").write_text("import torch_npu")
    (tmp_path / "test_it.py").write_text(
        "import torch_npu\ndef test_it(): assert torch_npu.npu.is_available()"
    )

    result = fresh_python.run("-m", "pytest", "-q", "--npu-torch-npu")

    assert "1 passed" in result.stdout, result.stdout + result.stderr


FAILURES = """
import sys
import npu_dispatch, torch
npu = torch.npu
def missing_row():
    torch.nn.functional.embedding(
        torch.tensor([9], device="npu"), torch.zeros(4, 2, device="npu")
    )
    npu.synchronize()
for call in (
    lambda: npu.set_dump("/no/such/file"),
    lambda: npu.caching_allocator_alloc("x"),
    lambda: npu.set_per_process_memory_fraction(7.0),
    lambda: npu.caching_allocator_alloc(-1),
    missing_row,
):
    try:
        call()
    except Exception as error:
        print(type(error).__name__, "|", str(error).replace(chr(10), "~"))
    npu.clear_error()
"""
LINE = re.compile(
    r"~\[ERROR\] \d{4}-\d\d-\d\d-\d\d:\d\d:\d\d "
    r"\(PID:\d+, Device:0, RankID:(-1|3)\) (ERR\d{5} PTA [a-z ]+)$"
)
CODES = [
    "ERR00001 PTA invalid parameter",
    "ERR00002 PTA invalid type",
    "ERR00003 PTA invalid value",
    "ERR00001 PTA invalid parameter",
    "ERR00100 PTA call acl api failed",
]
CLASSES = ["AssertionError", "TypeError", "ValueError", "RuntimeError"]


@pytest.mark.parametrize("rank", [{}, {"RANK": "3"}])
def test_messages_for_torch_npus_programs_end_with_a_code(rank, python):
    lines = python(FAILURES, **ALIAS, **rank).stdout.splitlines()

    found = [LINE.search(line) for line in lines]
    assert [match and match[2] for match in found] == CODES
    assert {match[1] for match in found} == {rank.get("RANK", "-1")}
    assert [line.split(" | ")[0] for line in lines] == [*CLASSES, "DeviceIndexError"]


@pytest.mark.parametrize(
    ("before", "env"),
    [
        ("", {}),
        ("", {**ALIAS, "TORCH_NPU_COMPACT_ERROR_OUTPUT": "1"}),
        ("import sys; sys.ps1 = '> '\n", ALIAS),
    ],
    ids=["without the alias", "compact", "an interactive interpreter"],
)
def test_otherwise_there_is_no_code(before, env, python):
    result = python(before + FAILURES, **env).stdout

    assert len(result.splitlines()) == len(CODES) and "ERR0" not in result
