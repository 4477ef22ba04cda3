"""Dtypes of 16 bits, and those that only CUDA's kernels take."""

import pytest
import torch
import torch.nn.functional as F

from tests.ecosystem.both import outcome, same
from tests.graphs.captured import captured


def counts_of_experts(chosen, experts):
    """Count tokens per expert as layers that mix experts do on a GPU."""
    return torch.histc(chosen.int(), bins=experts, min=0, max=experts - 1)


def test_a_layer_of_experts_waits_for_nothing():
    torch.manual_seed(0)
    chosen = torch.randint(0, 4, (12,))
    weights = torch.randn(4, 3, 3)
    x = torch.randn(12, 3)

    def layer(x, chosen, weights):
        order = chosen.argsort(stable=True)
        ends = counts_of_experts(chosen, 4).cumsum(0)
        places = torch.arange(12, device=x.device)
        expert = (places[:, None] >= ends).sum(1)
        return torch.bmm(x[order][:, None], weights[expert])[:, 0], ends

    on_npu = [t.npu() for t in (x, chosen, weights)]
    layer(*on_npu)
    with torch.npu.sync_guard("error"):
        out, ends = layer(*on_npu)
    assert ends.tolist() == torch.bincount(chosen, minlength=4).cumsum(0).tolist()
    order = chosen.argsort(stable=True)
    expected = torch.bmm(x[order][:, None], weights[chosen[order]])[:, 0]
    torch.testing.assert_close(out.cpu(), expected)


def test_in_a_graph():
    static = torch.zeros(6, dtype=torch.int32, device="npu")
    counts_of_experts(static, 4)
    graph, counts = captured(lambda: counts_of_experts(static, 4))
    for values in ([0, 1, 1, 3, 3, 3], [2, 2, 2, 2, 0, 0]):
        static.copy_(torch.tensor(values, dtype=torch.int32))
        graph.replay()
        assert counts.tolist() == [values.count(i) for i in range(4)]


def test_what_no_device_has_is_still_refused_in_the_words_of_cpu():
    for call in (torch.neg, torch.Tensor.sigmoid_):
        same(call, torch.ones(3, dtype=torch.bool))


def test_an_operator_without_a_kernel_on_the_host_is_refused_by_the_call():
    q = torch.randn(1, 4, 2, 8, dtype=torch.float16, device="npu")
    with pytest.raises(NotImplementedError, match="_flash_attention_forward"):
        torch.ops.aten._flash_attention_forward(
            q, q, q, None, None, 4, 4, 0.0, False, False
        )
    torch.npu.synchronize()


@pytest.mark.parametrize(
    ("call", "shapes"),
    [(F.conv2d, ((1, 4, 8, 8), (4, 4, 3, 3))), (torch.mm, ((32, 32), (32, 32)))],
    ids=["convolution", "product"],
)
def test_a_replay_computes_the_same(call, shapes):
    x, weight = (torch.randn(shape).half().npu() for shape in shapes)
    want = call(x, weight).cpu()
    graph, y = captured(lambda: call(x, weight))
    for _ in range(2):
        y.zero_()
        graph.replay()
        assert torch.equal(y.cpu(), want)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_convolution_without_results_is_accepted_where_cpu_accepts_it(dtype):
    """float32's kernel refuses it, and so does float16's on some processors."""

    def evaluate(device):
        x, weight = (
            torch.zeros(shape, dtype=dtype, device=device, requires_grad=True)
            for shape in ((1, 1, 4, 5, 1), (1, 1, 4, 3, 1))
        )
        y = F.conv_transpose3d(
            x, weight, stride=3, padding=(0, 0, 1), output_padding=(0, 0, 1)
        )
        y.sum().backward()
        return y, x.grad, weight.grad

    wanted, found = outcome(evaluate, "cpu"), outcome(evaluate, "npu")
    if isinstance(wanted, tuple):
        assert "Output size is too small" in wanted[1]
        assert "Output size is too small" in found[1]
        return
    assert wanted[0][2].shape == found[0][2].shape == (1, 1, 13, 15, 0)
    torch.testing.assert_close([f[2] for f in found[1:]], [w[2] for w in wanted[1:]])
