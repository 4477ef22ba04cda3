"""torch.compile(model) on npu: values, gradients, when work is done, what is cached."""

import copy
from pathlib import Path

import pytest
import torch
from compiled import check_as_on_cpu
from held_stream import Held
from sanitizer_off import sanitizer_off
from step_loop import plain_loop
from torch import nn

from npu_dispatch import inductor
from npu_dispatch.inductor import host_scalars
from npu_dispatch.observe.segment import StatsReader, segment_file


def test_training_steps_are_those_of_cpu():
    torch.manual_seed(0)
    layers = nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4)
    cpu = nn.Sequential(*layers)
    npu = copy.deepcopy(cpu).npu()
    data = list(zip(torch.randn(5, 8, 16), torch.randint(0, 4, (5, 8)), strict=True))

    losses = []
    for model in (torch.compile(npu, fullgraph=True), cpu):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        losses.append(torch.tensor(plain_loop(model, optimizer, data)))

    torch.testing.assert_close(*losses)
    ours, theirs = list(npu.parameters()), list(cpu.parameters())
    torch.testing.assert_close(ours, theirs, check_device=False)


def recent_tasks(stream):
    with StatsReader(segment_file()) as reader:
        recent = reader.recent(stream.device_index, stream.stream_id)
    return [task.op for task in sorted(recent, key=lambda t: t.task)]


def test_a_fused_kernel_is_one_task_that_nobody_waits_for():
    function = torch.compile(lambda x, y: ((x + y).relu() * 2).sum(-1))
    x, y = torch.ones(8, 16).npu(), torch.ones(8, 16).npu()
    function(x, y)
    torch.npu.synchronize()
    stream = torch.npu.current_stream()

    with Held(), torch.npu.sync_guard("error"):
        z = function(x, y)
        x.zero_()
        assert not stream.query()
    torch.npu.synchronize()

    assert z.cpu().tolist() == [64.0] * 8
    tasks = recent_tasks(stream)
    held = max(i for i, op in enumerate(tasks) if op == "held")
    launched = ["npu_fused_add_mul_relu_sum_0", "aten::zero_"]
    assert tasks[held + 1 : held + 3] == launched


def test_the_line_of_a_fused_kernel_is_the_users(python):
    # In a process of its own: the segment keeps the first 8,192 lines of one.
    code = """
import torch
from npu_dispatch.observe.segment import StatsReader, segment_file

function = torch.compile(lambda x: (x + 1).relu() * 2)
x = torch.ones(8, 16).npu()
for _ in range(2):
    function(x)
torch.npu.synchronize()
with StatsReader(segment_file()) as reader:
    recent = reader.recent(0, torch.npu.current_stream().stream_id)
print({task.at for task in recent if task.op.startswith("npu_fused")})
"""
    assert python(code).stdout.strip() == "{'<string>:5 in <lambda>'}"


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
def test_modes_compute_the_same(mode):
    x = torch.randn(8, 16, requires_grad=True)
    check_as_on_cpu(lambda x: (x.sin() * x).sum(-1), x, mode=mode)


# While a copy from pinned memory is under way the race sanitizer has a dispatch key of
# its own on the thread, and Dynamo one more program for that.
@sanitizer_off()
def test_shapes_that_change_do_not_recompile():
    function = check_as_on_cpu(
        lambda x: (x.softmax(-1) * x.shape[0]).sum(0),
        torch.randn(6, 128, requires_grad=True),
        dynamic=True,
        fullgraph=True,
    )
    torch._dynamo.config.error_on_recompile = True
    try:
        # The larger one is for several threads, the smaller ones for one.
        for rows in (3, 7, 3000):
            x = torch.randn(rows, 128)
            want = (x.softmax(-1) * rows).sum(0)
            got = function(x.npu().requires_grad_())
            torch.testing.assert_close(got.detach().cpu(), want, rtol=1e-5, atol=0)
    finally:
        torch._dynamo.config.error_on_recompile = False


def key():
    return host_scalars.MoveHostScalars().uuid()


def test_the_key_changes_with_threads_and_instruction_set(monkeypatch):
    before = key()
    assert key() == before

    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        assert key() != before
    finally:
        torch.set_num_threads(threads)
    monkeypatch.setattr(host_scalars, "pick_vec_isa", lambda: "another")
    assert key() != before


def test_the_key_changes_with_each_file_of_the_package(tmp_path, monkeypatch):
    package = Path(inductor.__file__).parent
    names = {p.name for p in package.iterdir() if p.is_file()}
    for name in names:
        (tmp_path / name).write_bytes((package / name).read_bytes())
    own_code = host_scalars._own_code.__wrapped__
    monkeypatch.setattr(host_scalars, "__file__", str(tmp_path / "host_scalars.py"))
    seen = {own_code()}

    assert {"runtime.py", "entry.py", "exports.map"} <= names
    for name in sorted(names):
        with (tmp_path / name).open("a") as file:
            file.write("\n")
        seen.add(own_code())
    assert len(seen) == len(names) + 1
