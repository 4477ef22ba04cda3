"""The vendor's fused functions against torch's own formulas."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from npu_dispatch.integrations import torch_npu

B, N, S, D = 2, 4, 6, 8


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def qkv(heads: int = N) -> tuple[torch.Tensor, ...]:
    shapes = (B, N, S, D), (B, heads, S, D), (B, heads, S, D)
    return tuple(torch.randn(shape).npu() for shape in shapes)


LAYOUTS = {
    "BNSD": lambda x: x,
    "BSND": lambda x: x.transpose(1, 2),
    "BSH": lambda x: x.transpose(1, 2).flatten(2),
    "SBH": lambda x: x.permute(2, 0, 1, 3).flatten(2),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("key_heads", [N, 2])
def test_attention_in_every_layout(layout, key_heads):
    tensors = qkv(key_heads)
    q, k, v = (LAYOUTS[layout](t) for t in tensors)

    found = torch_npu.npu_fusion_attention(q, k, v, N, layout, scale=D**-0.5)[0]

    expected = F.scaled_dot_product_attention(
        *(t.cpu() for t in tensors), enable_gqa=True
    )
    torch.testing.assert_close(found.cpu(), LAYOUTS[layout](expected))


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_causal_attention(mode):
    q, k, v = qkv()
    mask = torch.ones(S, S, dtype=torch.bool).triu(1).npu()

    found = torch_npu.npu_fusion_attention(
        q, k, v, N, "BNSD", atten_mask=mask, scale=D**-0.5, sparse_mode=mode
    )[0]

    expected = F.scaled_dot_product_attention(q.cpu(), k.cpu(), v.cpu(), is_causal=True)
    torch.testing.assert_close(found.cpu(), expected)


def test_causal_from_the_lower_right_corner_lets_the_last_row_see_all():
    q, k, v = qkv()
    q = q[:, :, :2]
    mask = torch.ones(2, S, dtype=torch.bool).triu(S - 1)

    found = torch_npu.npu_fusion_attention(q, k, v, N, "BNSD", sparse_mode=3)[0]

    expected = F.scaled_dot_product_attention(
        q.cpu(), k.cpu(), v.cpu(), attn_mask=~mask, scale=1.0
    )
    torch.testing.assert_close(found.cpu(), expected)


def test_sequences_of_several_lengths():
    ends = (3, 10, 12)
    q, k, v = (torch.randn(12, N, D).npu() for _ in range(3))

    found, most, total, *_ = torch_npu.npu_fusion_attention(
        q, k, v, N, "TND", actual_seq_qlen=ends, actual_seq_kvlen=ends
    )

    for begin, end in zip((0, *ends), ends, strict=False):
        part = (t[begin:end].transpose(0, 1)[None].cpu() for t in (q, k, v))
        expected = F.scaled_dot_product_attention(*part, scale=1.0)
        torch.testing.assert_close(found[begin:end].cpu(), expected[0].transpose(0, 1))
    assert most.shape == total.shape == (12, N, 8)


def test_the_statistics_are_those_of_the_softmax():
    q, k, v = qkv()
    scores = (q.cpu() @ k.cpu().mT).double()

    _, most, total, *_ = torch_npu.npu_fusion_attention(q, k, v, N, "BNSD")

    logsumexp = (most.cpu().double() + total.cpu().double().log())[..., 0]
    torch.testing.assert_close(logsumexp, scores.logsumexp(-1), rtol=1e-5, atol=1e-5)


def test_position_codes_are_added_before_scaling():
    q, k, v = qkv()
    codes = torch.randn(B, N, S, S)

    found = torch_npu.npu_fusion_attention(
        q, k, v, N, "BNSD", pse=codes.npu(), scale=0.5
    )[0]

    expected = ((codes + q.cpu() @ k.cpu().mT) * 0.5).softmax(-1) @ v.cpu()
    torch.testing.assert_close(found.cpu(), expected)


def test_gradients_flow_through_attention():
    tensors = [t.requires_grad_() for t in qkv()]

    torch_npu.npu_fusion_attention(*tensors, N, "BNSD")[0].sum().backward()

    reference = [t.detach().cpu().requires_grad_() for t in tensors]
    F.scaled_dot_product_attention(*reference, scale=1.0).sum().backward()
    for mine, theirs in zip(tensors, reference, strict=True):
        torch.testing.assert_close(mine.grad.cpu(), theirs.grad, rtol=1e-4, atol=1e-5)


def test_rms_norm():
    x, gamma = torch.randn(4, 8).npu(), torch.randn(8).npu()

    found, rstd = torch_npu.npu_rms_norm(x, gamma, 1e-5)

    expected = F.rms_norm(x.cpu(), (8,), gamma.cpu(), 1e-5)
    torch.testing.assert_close(found.cpu(), expected)
    torch.testing.assert_close((x * rstd * gamma).cpu(), expected)


@pytest.mark.parametrize("approximate", [0, 1])
@pytest.mark.parametrize("left", [False, True])
def test_geglu(approximate, left):
    x = torch.randn(3, 8).npu()
    a, b = x.cpu().chunk(2, -1)
    if left:
        a, b = b, a

    found, gelu = torch_npu.npu_geglu(x, -1, approximate, left)

    expected = F.gelu(b, approximate="tanh" if approximate else "none")
    torch.testing.assert_close(gelu.cpu(), expected)
    torch.testing.assert_close(found.cpu(), a * expected)


@pytest.mark.parametrize("mode", ["half", "interleave"])
def test_rotation_keeps_the_length_and_turns_by_the_angle(mode):
    x = torch.randn(5, 8)
    angle = torch.full((5, 8), 0.3)

    found = torch_npu.npu_rotary_mul(
        x.npu(), angle.cos().npu(), angle.sin().npu(), mode
    ).cpu()

    first, second = (x[:, ::2], x[:, 1::2]) if mode == "interleave" else x.chunk(2, -1)
    turned = torch.complex(first, second) * torch.polar(torch.ones(1), angle[:, :4])
    parts = (
        (found[:, ::2], found[:, 1::2]) if mode == "interleave" else found.chunk(2, -1)
    )
    torch.testing.assert_close(torch.complex(*parts), turned)


def test_adam_w_takes_the_steps_of_torchs():
    start = torch.randn(6)
    reference = start.clone().requires_grad_()
    optimizer = torch.optim.AdamW([reference], lr=0.1, weight_decay=0.05)
    state = tuple(t.npu() for t in (start, torch.zeros(6), torch.zeros(6)))

    for step in range(4):
        grad = torch.randn(6)
        reference.grad = grad
        optimizer.step()
        torch_npu.npu_apply_adam_w(
            *(0.9**step, 0.999**step, 0.1, 0.05, 0.9, 0.999, 1e-8),
            *(grad.npu(), None, False, False),
            out=state,
        )

    torch.testing.assert_close(state[0].cpu(), reference.detach())
