"""Arguments that operators write although their schemas do not say so."""

import torch
import torch.nn.functional as F

npu = torch.npu


def _running():
    return torch.zeros(4, device="npu"), torch.ones(4, device="npu")


def racy_running_mean_is_read_while_it_is_updated():
    "read/write"
    (mean, var), s = _running(), npu.Stream()
    x = torch.rand(8, 4, device="npu")
    npu.synchronize()
    with npu.stream(s):
        y = F.batch_norm(x, mean, var, training=True)  # first: aten::native_batch_norm
    z = mean + 1  # second: aten::add.Tensor
    return y, z


def correct_running_mean_is_read_after_its_update():
    (mean, var), s = _running(), npu.Stream()
    x = torch.rand(8, 4, device="npu")
    npu.synchronize()
    with npu.stream(s):
        y = F.batch_norm(x, mean, var, training=True)
    npu.current_stream().wait_stream(s)
    return y, mean + 1


def racy_statistics_are_updated_while_the_variance_is_read():
    "read/write"
    (mean, var), s = _running(), npu.Stream()
    x = torch.rand(8, 4, device="npu")
    npu.synchronize()
    with npu.stream(s):
        z = var + 1  # first: aten::add.Tensor
    torch.batch_norm_update_stats(  # second: aten::batch_norm_update_stats
        x, mean, var, 0.1
    )
    return z


def correct_two_streams_normalise_with_the_same_statistics():
    (mean, var), s = _running(), npu.Stream()
    x = torch.rand(8, 4, device="npu")
    npu.synchronize()
    with npu.stream(s):
        y = F.batch_norm(x, mean, var, training=False)
    return y, F.batch_norm(x, mean, var, training=False)
