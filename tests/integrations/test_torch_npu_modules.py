"""What programs import of torch_npu besides operators works, or names the page."""

from __future__ import annotations

import json
import os

import pytest
import torch
from torch import nn

from npu_dispatch.integrations import torch_npu
from npu_dispatch.integrations.torch_npu.contrib import function, module

profiler = torch_npu.profiler


def test_a_profile_of_some_steps_is_a_trace_with_the_devices_kernels(tmp_path):
    settings = profiler._ExperimentalConfig(
        profiler_level=profiler.ProfilerLevel.Level1,
        aic_metrics=profiler.AiCMetrics.PipeUtilization,
        export_type=[profiler.ExportType.Text],
        data_simplification=False,
        mstx=True,
    )
    x = torch.ones(8, 8, device="npu")
    with profiler.profile(
        activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.NPU],
        schedule=profiler.schedule(wait=1, warmup=1, active=2, repeat=1),
        on_trace_ready=profiler.tensorboard_trace_handler(
            str(tmp_path), worker_name="one", analyse_flag=True, async_mode=False
        ),
        record_shapes=True,
        profile_memory=True,
        with_stack=True,
        experimental_config=settings,
    ) as running:
        for _ in range(5):
            x = x @ x / 8
            torch.npu.synchronize()
            running.step()

    [trace] = tmp_path.glob("one*.json")
    events = json.loads(trace.read_text())["traceEvents"]
    kernels = [e for e in events if e.get("cat") == "kernel" and "mm" in e["name"]]
    assert len(kernels) == 2
    assert any(e.key == "aten::mm" for e in running.key_averages())


def test_a_profile_records_host_and_device_by_default():
    with profiler.profile() as running:
        torch.ones(4, device="npu").add(1)
        torch.npu.synchronize()

    assert set(running.activities) == profiler.supported_activities()
    with pytest.raises(TypeError, match="no_such"):
        profiler._ExperimentalConfig(no_such=1)


def test_flops_are_counted_between_start_and_stop():
    counter, x = torch_npu.utils.FlopsCounter(), torch.ones(4, 8, device="npu")
    counter.start()
    x @ x.mT
    counter.pause()
    x @ x.mT

    assert counter.get_flops() == [2 * 4 * 8 * 4] * 2


def test_a_thread_runs_on_the_cores_it_names():
    before = os.sched_getaffinity(0)
    first = min(before)
    torch_npu.utils.set_thread_affinity([first, first])
    try:
        assert os.sched_getaffinity(0) == {first}
    finally:
        torch_npu.utils.set_thread_affinity()
    assert os.sched_getaffinity(0) == before


def test_toolkit_and_collectives():
    from npu_dispatch.integrations.torch_npu.utils.collect_env import get_cann_version

    assert get_cann_version() == torch_npu.utils.get_cann_version("CANN") == ""
    assert torch_npu.distributed.is_hccl_available()
    assert torch_npu.amp is torch.npu.amp


def test_functions_of_contrib():
    a, b, mask = (torch.randn(2, 3, 4, 4) for _ in "abm")
    dropout = nn.Dropout(0.0)
    found = {
        "product": function.matmul_transpose(a.npu(), b.npu()),
        "rolled": function.roll(a.npu(), (-1, 1), (1, 2)),
        "put": function.npu_fast_condition_index_put(a.npu(), (a < 0).npu(), 2.0),
        "softmax": function.fuse_add_softmax_dropout(
            False, dropout, mask.npu(), a.npu(), 4, p=0.5
        ),
        "dropped": function.dropout_with_byte_mask(a.npu(), 0.0),
    }
    put = a.clone()
    put[a < 0] = 2.0
    expected = {
        "product": torch.einsum("ijkl,ijml->ijkm", a, b),
        "rolled": torch.cat((a[:, 1:], a[:, :1]), 1)[:, :, [3, 0, 1, 2]],
        "put": put,
        "softmax": (mask + a / 2).softmax(-1),
        "dropped": a,
    }
    for name, value in found.items():
        torch.testing.assert_close(value.cpu(), expected[name])


def test_smoothed_labels():
    pred, target = torch.randn(4, 5), torch.tensor([0, 4, 2, 1])
    smooth = module.LabelSmoothingCrossEntropy(5, 0.2)

    found = smooth(pred.npu(), target.npu().int())

    logs = pred.log_softmax(-1)
    right = logs[torch.arange(4), target]
    wrong = logs.sum(-1) - right
    torch.testing.assert_close(found.cpu(), -(0.8 * right + 0.05 * wrong).mean())


def test_dropped_paths_are_whole_samples_and_the_rest_is_scaled():
    x = torch.ones(64, 3, 2, device="npu")
    drop = module.NpuDropPath(0.5)

    kept = drop(x).cpu()

    assert {tuple(sample.unique().tolist()) for sample in kept} == {(0.0,), (2.0,)}
    assert torch.equal(drop.eval()(x), x)


def test_a_prefetcher_gives_every_pair_on_the_device():
    pairs = [(torch.full((4,), float(i)), torch.tensor(i)) for i in range(3)]
    fetched = module.Prefetcher(pairs)
    seen = []
    x, y = fetched.next()
    while x is not None:
        assert x.device.type == y.device.type == "npu"
        seen.append((x.sum().item(), y.item()))
        x, y = fetched.next()

    assert seen == [(0.0, 0), (4.0, 1), (8.0, 2)]


def test_modules_that_torch_has_are_torchs():
    assert module.Mish is nn.Mish and module.SiLU is module.Swish is nn.SiLU
    assert module.FastBatchNorm2d is nn.BatchNorm2d
    assert torch_npu.contrib.module is module


@pytest.mark.parametrize(
    "owner",
    [
        torch.npu,
        torch.npu.random,
        torch_npu,
        torch_npu._C,
        torch_npu.optim,
        profiler,
        torch_npu.utils,
        torch_npu.distributed,
        torch_npu.contrib,
        function,
        module,
    ],
)
def test_other_names_of_the_vendors_name_the_page(owner):
    assert not hasattr(owner, "npu_no_such")
    sentence = r"^torch[_.]npu.*no_such .*torch_npu\.md"
    with pytest.raises(AttributeError, match=sentence):
        owner.npu_no_such
    with pytest.raises(ImportError, match=sentence):
        exec(f"from {owner.__name__} import npu_no_such")
    assert all(hasattr(owner, name) for name in getattr(owner, "__all__", ()))
