"""Each operator of torch_npu against its formula, written in plain torch or numpy.

A formula sees copies on the cpu of what the operator sees, and gives all its results,
in the same types. Integers are compared exactly.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch
from sanitizer_off import sanitizer_off
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

from npu_dispatch.integrations import torch_npu
from npu_dispatch.integrations.torch_npu import _operators
from npu_dispatch.npu import _sanitizer

HALF_NEAR = {"rtol": 3e-2, "atol": 5e-2}


DRAWN = torch.Generator().manual_seed(0)


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=DRAWN)


def ints(high: int, *shape: int, low: int = 0, dtype=torch.int32) -> torch.Tensor:
    return torch.randint(low, high, shape, dtype=dtype, generator=DRAWN)


def rms(x, gamma, epsilon):
    rstd = 1 / (x.float().square().mean(-1, keepdim=True) + epsilon).sqrt()
    return (x.float() * rstd).to(x.dtype) * gamma, rstd


def add_rms(x1, x2, gamma):
    return (*rms(x1 + x2, gamma, 1e-6), x1 + x2)


def deep_norm(x, gx, beta, gamma):
    x32 = 0.3 * x.float() + gx.float()
    mean = x32.mean((-2, -1), keepdim=True)
    rstd = 1 / ((x32 - mean).square().mean((-2, -1), keepdim=True) + 1e-6).sqrt()
    return mean, rstd, ((x32 - mean) * rstd * gamma + beta).to(x.dtype)


def softmax(x, mask, scale):
    x32 = torch.where(mask, -10000.0, x.float() * scale)
    powers = (x32 - x32.amax(-1, keepdim=True)).exp()
    return (powers / powers.sum(-1, keepdim=True)).to(x.dtype)


def triangular(x, mask, scale, _):
    return softmax(x, CAUSAL[:4, :4], scale)


def turned(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def both_turned(query, key, cos, sin):
    return turned(query, cos, sin), turned(key, cos, sin)


def one_hot(classes, axis, depth, on, off):
    found = np.full((*classes.shape, depth), off, np.float32)
    for place in np.ndindex(*classes.shape):
        if 0 <= classes[place] < depth:
            found[(*place, classes[place])] = on
    return torch.from_numpy(np.moveaxis(found, -1, axis).copy())


def gating(x, finished, k):
    shares = x.float().softmax(-1)
    experts = np.argsort(-shares.numpy(force=True), -1, kind="stable")[:, :k]
    best = shares.gather(1, torch.from_numpy(experts)).to(x.dtype)
    rows = np.arange(experts.size).reshape(k, -1).T
    if finished is not None:
        experts = np.where(finished.numpy()[:, None], x.shape[1], experts)
    return best, torch.tensor(experts).int(), torch.tensor(rows.copy()).int()


def init_routing(x, rows, experts, active):
    n, k = experts.shape
    order = np.argsort(experts.flatten().numpy(), kind="stable")
    sources = rows.flatten().numpy()[order]
    places = np.zeros(n * k, np.int32)
    places[sources] = np.arange(n * k)
    chosen = torch.from_numpy(sources[: min(active, n) * k] % n).long()
    return x[chosen], torch.from_numpy(places), experts.flatten()[order]


def routing(x, experts, active_expert_range, **how):
    first, last = active_expert_range
    experts = experts.numpy().ravel()
    keys = np.where((first <= experts) & (experts < last), experts, last)
    order = np.argsort(keys, kind="stable")
    places = order
    if how.get("row_idx_type", 0) == 0:
        own = order[: (keys < last).sum()]
        places = np.full(len(keys), -1)
        places[own] = np.arange(len(own))
    tokens = np.bincount(keys, minlength=last + 1)[first:last]
    if how.get("expert_tokens_num_type", 0) == 0:
        tokens = tokens.cumsum()
    rows = x[order // (len(keys) // len(x))]
    scale = how.get("scale", torch.zeros(len(x)))
    if how.get("quant_mode", -1) == 1:
        of_rows = scale[np.minimum(keys[order], last - 1) - first]
        rows, scale = dynamic_quant(rows, of_rows)
    else:
        scale = scale[order // (len(keys) // len(x))]
    return rows, torch.tensor(places).int(), torch.from_numpy(tokens), scale


def overlaps(boxes, others, mode=0):
    found = torch.zeros(len(others), len(boxes))
    for i, (left, top, right, bottom) in enumerate(others.tolist()):
        for j, (x1, y1, x2, y2) in enumerate(boxes.tolist()):
            width = max(0, min(right, x2) - max(left, x1))
            height = max(0, min(bottom, y2) - max(top, y1))
            area = (right - left) * (bottom - top)
            if mode == 0:
                area += (x2 - x1) * (y2 - y1) - width * height
            found[i, j] = width * height / area
    return found


def finalize(rows, skip1, skip2, bias, scales, places, experts, mode):
    n, k = scales.shape
    rows = rows.flatten(0, -2)
    total = [skip1[i] + skip2[i] for i in range(n)]
    for i in range(n):
        for j in range(k):
            place = places[i * k + j if mode >= 2 else j * n + i]
            row = rows[place] if place >= 0 else torch.zeros(rows.shape[1])
            total[i] = total[i] + scales[i, j] * (row + bias[experts[i, j]])
    return torch.stack(total).to(rows.dtype)


def permute(tokens, indices, limit):
    k = 1 if indices.dim() == 1 else indices.shape[1]
    order = np.argsort(indices.flatten().numpy(), kind="stable")
    places = torch.from_numpy(np.argsort(order).astype(np.int32))
    return tokens[torch.from_numpy(order[:limit] // k)], places


def unpermute(rows, places, probs):
    total = []
    for i in range(probs.shape[0]):
        total.append(torch.zeros(rows.shape[1]))
        for j in range(probs.shape[1]):
            if (place := places[i * probs.shape[1] + j]) < len(rows):
                total[i] = total[i] + probs[i, j] * rows[place]
    return torch.stack(total).to(rows.dtype)


def grouped(x, weight, **how):
    x, weight, bias = x[0], weight[0], how.get("bias", [torch.zeros(3, 1)])[0]
    ends = how["group_list"]
    ends = ends.cumsum(0) if how.get("group_list_type") else ends
    parts, begin = [], 0
    for i, end in enumerate(ends.tolist()):
        if how.get("group_type") == 2:
            parts.append((x[:, begin:end] @ weight[begin:end])[None])
        else:
            parts.append(x[begin:end] @ weight[i] + bias[i].to(x.dtype))
        begin = end
    return [torch.cat(parts)] if how["split_item"] == 3 else parts


def grouped_int8(x, weight, bias, scale, per_token_scale, group_list, **how):
    found, begin = [], 0
    for i, end in enumerate(group_list.tolist()):
        product = x[0][begin:end].double() @ weight[0][i].double() + bias[0][i]
        found.append(product * scale[0][i] * per_token_scale[0][begin:end, None])
        begin = end
    return [torch.cat(found).to(how["output_dtype"])]


def one_by_one(x, weight, bias):
    return [a @ b + c for a, b, c in zip(x, weight, bias, strict=True)]


def quantize(x, scales, zero, dtype, axis=1, div_mode=True):
    x, scales = x.double().numpy(), scales.double().numpy()
    shape = [1] * x.ndim
    shape[axis] = -1
    scales, zero = scales.reshape(shape), zero.double().numpy().reshape(shape)
    found = np.round(x / scales) + zero if div_mode else np.round(x * scales + zero)
    low, high = {torch.quint8: (0, 255)}.get(dtype, (-128, 127))
    stored = np.uint8 if low == 0 else np.int8
    return torch.from_numpy(found.clip(low, high).astype(stored))


def dynamic_quant(x, smooth_scales):
    x = (x * smooth_scales).numpy()
    scale = np.abs(x).max(-1) / np.float32(127)
    with np.errstate(invalid="ignore"):
        found = np.nan_to_num(np.round(x / scale[..., None]))
    return torch.from_numpy(found.astype(np.int8)), torch.from_numpy(scale)


def quant_matmul(x1, x2, scale, pertoken_scale, bias, output_dtype, offset=None):
    product = x1.numpy().astype(np.int64) @ x2.numpy().astype(np.int64)
    product = product + bias.numpy() if bias.dtype == torch.int32 else product
    found = product * scale.numpy() * pertoken_scale.numpy()[:, None]
    found = found if bias.dtype == torch.int32 else found + bias.numpy()
    if output_dtype is not None:
        return torch.from_numpy(found).to(output_dtype)
    found = np.round(found + offset.numpy()).clip(-128, 127)
    return torch.from_numpy(found.astype(np.int8))


def attention(q, k, v, hidden):
    q, k, v = (x.unflatten(-1, (2, -1)).transpose(1, 2) for x in (q, k, v))
    found = F.scaled_dot_product_attention(q, k, v, ~hidden, scale=0.5)
    return found.transpose(1, 2).flatten(2)


def behind(q, k, v, **_):
    return attention(q, k, v, BEHIND)


def below(q, k, v, **_):
    return attention(q, k, v, CAUSAL)


def inference(q, k, v, softmax_lse_flag=False, hidden=None, **_):
    hidden = BEHIND if hidden is None else hidden
    heads = [x.float().unflatten(-1, (2, -1)).transpose(1, 2) for x in (q, k)]
    scores = heads[0] @ heads[1].mT * 0.5
    sums = scores.masked_fill(hidden, float("-inf")).logsumexp(-1, keepdim=True)
    return attention(q, k, v, hidden), sums if softmax_lse_flag else torch.zeros(1)


def inference_by_token(q, k, v, **_):
    parts = []
    for begin, end in ((0, 3), (3, 7)):
        whole = [x[begin:end].flatten(1)[None] for x in (q, k, v)]
        hidden = torch.ones(end - begin, end - begin, dtype=torch.bool).triu(1)
        found, sums = inference(*whole, softmax_lse_flag=True, hidden=hidden)
        parts.append((found[0].unflatten(-1, (2, -1)), sums[0].transpose(0, 1)))
    return tuple(torch.cat(x) for x in zip(*parts, strict=True))


EXPERTS = torch.tensor([[2, 0], [1, 2], [0, 1], [2, 1]], dtype=torch.int32)
COLUMNS = torch.arange(8, dtype=torch.int32).view(2, 4).t()
MIXED = torch.tensor([5, 0, 3, 7, 1, 6, 2, 4], dtype=torch.int32)
DROPPED = torch.tensor([5, -1, 3, 7, 1, -1, 2, 4], dtype=torch.int32)
SORTED = torch.tensor([0, 0, 2, 2, 2, 3], dtype=torch.int32)
SORTED_ENDS = torch.tensor([2, 2, 5, 6, 6], dtype=torch.int32)
ENDS, SIZES = torch.tensor([3, 3, 7]), torch.tensor([3, 0, 4])
BEHIND = torch.arange(6) >= torch.tensor([4, 6])[:, None, None, None]
CAUSAL = torch.ones(6, 6, dtype=torch.bool).triu(1)
NOTHING = torch.zeros(4, 4, dtype=torch.bool)
CASES: list[tuple[str, Any, Any, Any]] = []


def case(name: str, formula: Any, *args: Any, **kwargs: Any) -> None:
    CASES.append((f"npu_{name}", formula, args, kwargs))


case("rms_norm", rms, randn(4, 8), randn(8), 1e-5)
case("add_rms_norm", add_rms, randn(4, 8), randn(4, 8), randn(8))
wide, narrow = (4, 2, 8), (2, 8)
case("deep_norm", deep_norm, randn(*wide), randn(*wide), randn(*narrow), randn(*narrow))
case("scaled_masked_softmax", softmax, randn(2, 2, 4, 8), randn(2, 1, 4, 8) > 0, 0.5)
case("scaled_masked_softmax", triangular, randn(4, 4), NOTHING, 2.0, True)
case("gelu", F.gelu, randn(9), approximate="tanh")
case("fast_gelu", lambda x: x / (1 + (-1.702 * x).exp()), randn(9))
case("silu", lambda x: x / (1 + (-x).exp()), randn(9))
case("swiglu", lambda x: x[:, :4] * x[:, :4].sigmoid() * x[:, 4:], randn(3, 8))
heads = [randn(2, 3, n, 8) for n in (4, 2, 1, 1)]
case("apply_rotary_pos_emb", both_turned, *heads)
case("linear", lambda x, w, b: x @ w.T + b, randn(3, 4), randn(5, 4), randn(5))
case("dtype_cast", lambda x, _: x.trunc().int(), randn(5), torch.int32)
case("transpose", lambda x, _: x.movedim(2, 0), randn(2, 3, 4), (2, 0, 1))
swap, split, joint = (0, 2, 1, 3), (2, 3, 4, 2), (2, 3, 8)
case(
    *("confusion_transpose", lambda x, *_: x.view(split).transpose(1, 2)),
    *(randn(2, 3, 8), swap, split, False),
)
case(
    *("confusion_transpose", lambda x, *_: x.transpose(1, 2).reshape(joint)),
    *(randn(2, 4, 3, 2), swap, joint, True),
)
case("one_hot", one_hot, ints(6, 4, 3), -1, 5, 2.0, -1.0)
case("one_hot", one_hot, ints(5, 4, 3), 1, 5, 1, 0)
case("moe_gating_top_k_softmax", gating, randn(4, 6), None, 2)
case("moe_gating_top_k_softmax", gating, randn(4, 6), randn(4) > 0, 3)
case("moe_init_routing", init_routing, randn(4, 8), COLUMNS, EXPERTS, 3)
case("moe_compute_expert_tokens", lambda *_: SORTED_ENDS, SORTED, 5)
for mode in range(4):
    rows, places = (randn(2, 4, 5), DROPPED) if mode % 2 else (randn(8, 5), MIXED)
    more = (randn(4, 5), randn(4, 5), randn(3, 5), randn(4, 2), places, EXPERTS, mode)
    case("moe_finalize_routing", finalize, rows, *more)
case("moe_token_permute", permute, randn(4, 5), EXPERTS, None)
case("moe_token_permute", permute, randn(4, 5), EXPERTS, 6)
case("moe_token_permute", permute, randn(4, 5), EXPERTS[:, 0], None)
case("moe_token_unpermute", unpermute, randn(8, 5), MIXED, randn(4, 2))
case("moe_token_unpermute", unpermute, randn(6, 5), MIXED, randn(4, 2))
in_all = {"group_list": ENDS, "split_item": 3}
product = "grouped_matmul", grouped
case(*product, [randn(7, 5)], [randn(3, 5, 6)], bias=[randn(3, 6)], **in_all)
sizes = {**in_all, "group_list": SIZES, "group_list_type": 1}
case(*product, [randn(7, 8)], [randn(3, 8, 4)], **sizes)
case(*product, [randn(7, 5).T], [randn(7, 3)], group_type=2, **in_all)
several = [[randn(2, 5), randn(4, 3)], [randn(5, 6), randn(3, 2)]]
case("grouped_matmul", one_by_one, *several, bias=[randn(6), randn(2)])
case("quantize", quantize, randn(3, 4) * 9, randn(4).abs(), ints(9, 4), torch.quint8)
scaled = randn(3, 4) * 9, randn(4), randn(4)
case("quantize", quantize, *scaled, torch.qint8, -1, False)
case("dynamic_quant", dynamic_quant, torch.eye(4, 8)[1:] * 3, smooth_scales=randn(8))
for bias, dtype, offset in (
    (ints(9999, 6), torch.float32, {}),
    (randn(6), torch.bfloat16, {}),
    (ints(9999, 6), None, {"offset": randn(6)}),
):
    factors = [
        ints(128, *n, low=-128, dtype=torch.int8) for n in ((5, 2000), (2000, 6))
    ]
    how = {"pertoken_scale": randn(5), "bias": bias, "output_dtype": dtype, **offset}
    case("quant_matmul", quant_matmul, *factors, randn(6) / 9000, **how)
prompt, token = (randn(2, n, 8) for n in (6, 1))
twice = {"num_heads": 2, "scale_value": 0.5}
hidden = {"actual_seq_lengths_kv": [4, 6], **twice}
case("prompt_flash_attention", behind, prompt, prompt, randn(2, 6, 8), **hidden)
causal = {"atten_mask": CAUSAL, **twice}
case("prompt_flash_attention", below, prompt, prompt, randn(2, 6, 8), **causal)
hidden = {"actual_seq_lengths": [4, 6], **twice}
case("incre_flash_attention", behind, token, prompt, prompt + 1, **hidden)
hidden = {"atten_mask": BEHIND[:, 0, 0], **twice}
case("incre_flash_attention", behind, token, prompt, prompt + 1, **hidden)
fused, twice = "fused_infer_attention_score", {"num_heads": 2, "scale": 0.5}
hidden = {"actual_seq_lengths_kv": [4, 6], "softmax_lse_flag": True, **twice}
case(fused, inference, prompt, prompt, randn(2, 6, 8), **hidden)
hidden = {"atten_mask": BEHIND[:, 0, 0], **twice}
case(fused, inference, token, prompt, prompt + 1, **hidden)
ends = {"actual_seq_lengths": [3, 7], "actual_seq_lengths_kv": [3, 7]}
by_token = {"input_layout": "TND", "sparse_mode": 3, "softmax_lse_flag": True, **twice}
case(fused, inference_by_token, *(randn(7, 2, 4) for _ in range(3)), **by_token, **ends)
factors = [[ints(128, *n, low=-128, dtype=torch.int8)] for n in ((7, 5), (3, 5, 6))]
how = {"scale": [randn(3, 6)], "per_token_scale": [randn(7)], "group_list": ENDS}
how |= {"bias": [ints(999, 3, 6)], "split_item": 3, "output_dtype": torch.float32}
case("grouped_matmul", grouped_int8, *factors, **how)
routed = {"expert_num": 4, "active_expert_range": [1, 3]}
chosen = ints(4, 5, 2)
case("moe_init_routing_v2", routing, randn(5, 8), chosen, **routed)
routed["expert_tokens_num_type"] = 1
scale = {"scale": randn(5), "row_idx_type": 1}
case("moe_init_routing_v2", routing, randn(5, 8), chosen, **routed, **scale)
scale = {"scale": randn(2, 8), "quant_mode": 1}
case("moe_init_routing_v2", routing, randn(5, 8), chosen, **routed, **scale)
corners = [randn(5, 2), randn(3, 2)]
corners = [torch.cat((x, x + randn(*x.shape).abs() + 0.1), 1) for x in corners]
case("iou", overlaps, *corners)
case("iou", overlaps, *corners, mode=1)

every_case = pytest.mark.parametrize(
    ("name", "formula", "args", "kwargs"),
    CASES,
    ids=[f"{name}-{i}" for i, (name, *_) in enumerate(CASES)],
)
# Their results are integers, or of one type alone.
EXACT = {"npu_one_hot", "npu_dtype_cast", "npu_quantize", "npu_dynamic_quant"}
EXACT |= {"npu_quant_matmul", "npu_moe_compute_expert_tokens", "npu_iou"}
EXACT |= {"npu_moe_init_routing_v2"}


def mapped(value: Any, change: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: mapped(x, change) for key, x in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(x, change) for x in value)
    return value


def results(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)


def on_npu(value: Any, dtype=torch.float32, grad=False) -> Any:
    def change(x: torch.Tensor) -> torch.Tensor:
        if not x.is_floating_point():
            return x.npu()
        return x.to(dtype).npu().requires_grad_(grad)

    return mapped(value, change)


def gradients(tensors: Any, outputs: Any, weights: Any) -> list[torch.Tensor]:
    leaves: list[torch.Tensor] = []
    mapped(tensors, lambda x: leaves.append(x) if x.requires_grad else None)
    outputs = [x for x in outputs if x.requires_grad]
    return torch.autograd.grad(outputs, leaves, weights)


@every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_values_and_gradients(name, formula, args, kwargs, dtype):
    differentiable = dtype == torch.float32 and name not in EXACT
    if name in EXACT and dtype != torch.float32:
        return
    tensors = on_npu((args, kwargs), dtype, differentiable)
    of_cpu = mapped(tensors, lambda x: x.detach().cpu().requires_grad_(x.requires_grad))

    found = results(getattr(torch_npu, name)(*tensors[0], **tensors[1]))

    expected = results(formula(*of_cpu[0], **of_cpu[1]))
    near = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else HALF_NEAR
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine.cpu(), theirs, **near)
    by_name = results(getattr(torch.ops.npu, name)(*tensors[0], **tensors[1]))
    assert all(map(torch.equal, by_name, found))
    if differentiable:
        weights = [torch.randn_like(x) for x in expected if x.requires_grad]
        wanted = gradients(of_cpu, expected, weights)
        mine = gradients(tensors, found, [w.npu() for w in weights])
        for x, y in zip(mine, wanted, strict=True):
            torch.testing.assert_close(x.cpu(), y, rtol=1e-3, atol=1e-4)


@every_case
def test_shapes_are_known_without_data_and_to_the_compiler(name, args, kwargs, formula):
    args, kwargs = on_npu((args, kwargs))
    function = getattr(torch.ops.npu, name)
    wanted = results(function(*args, **kwargs))

    compiled = torch.compile(
        lambda *a, **k: function(*a, **k), backend="aot_eager", fullgraph=True
    )
    for mine, theirs in zip(results(compiled(*args, **kwargs)), wanted, strict=True):
        torch.testing.assert_close(mine, theirs)
    torch._dynamo.reset()  # which keeps the graph's constants
    with FakeTensorMode() as mode:
        fakes = mapped((args, kwargs), mode.from_tensor)
        found = results(function(*fakes[0], **fakes[1]))
    described = [(x.shape, x.dtype, x.device.type) for x in found]
    assert described == [(x.shape, x.dtype, x.device.type) for x in wanted]


def test_products_by_group_are_tensors_of_their_own_where_asked():
    x, weight = randn(7, 5).npu(), [randn(5, 6).npu() for _ in range(3)]

    for ends in (ENDS.npu(), ENDS.tolist()):
        found = torch_npu.npu_grouped_matmul([x], weight, group_list=ends)
        assert [part.shape[0] for part in found] == [3, 0, 4]
        for part, rows, w in zip(found, (x[:3], x[3:3], x[3:]), weight, strict=True):
            torch.testing.assert_close(part, rows @ w)


def test_products_by_group_are_exported_replayed_and_differentiated_by_the_compiler():
    class Grouped(torch.nn.Module):
        def forward(self, x, weight, ends):
            return torch.ops.npu.npu_grouped_matmul(
                [x], [weight], group_list=ends, split_item=3
            )[0]

    x, weight = (randn(*shape).npu() for shape in ((7, 5), (3, 5, 6)))
    ends, wanted = ENDS.npu(), torch.cat((x[:3] @ weight[0], x[3:] @ weight[2]))
    program = torch.export.export(Grouped(), (x, weight, ends))
    torch.testing.assert_close(program.module()(x, weight, ends), wanted)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        replayed = Grouped()(x, weight, ends)
    graph.replay()
    torch.testing.assert_close(replayed, wanted)
    x.requires_grad_()
    with torch._dynamo.compiled_autograd._enable(
        torch.compile(backend="aot_eager", fullgraph=True)
    ):
        Grouped()(x, weight, ends).sum().backward()
    torch.testing.assert_close(x.grad[:3], weight[0].sum(1).expand(3, 5))
    torch._dynamo.reset()


def test_the_race_sanitizer_finds_nothing():
    with sanitizer_off():
        _sanitizer.enable_npu_sanitizer("report")
        for name, _, args, kwargs in CASES:
            args, kwargs = on_npu((args, kwargs))
            getattr(torch_npu, name)(*args, **kwargs)
        torch.npu.synchronize()
        assert _sanitizer.reports() == []


def test_every_operator_is_tried():
    others = {"npu_fusion_attention", "npu_geglu", "npu_rotary_mul"}  # test_fused.py

    assert {name for name, *_ in CASES} | others == set(_operators.OPERATORS)
    assert set(_operators.OPERATORS) <= set(dir(torch_npu))


# As the vendor's documents and schemas give them: names, kinds and defaults.
SIGNATURES = """
npu_add_rms_norm(x1, x2, gamma, epsilon=1e-06)
npu_apply_rotary_pos_emb(query, key, cos, sin, layout='BSND', rotary_mode='half')
npu_confusion_transpose(self, perm, shape, transpose_first)
npu_deep_norm(x, gx, beta, gamma, alpha=0.3, epsilon=1e-06)
npu_dtype_cast(self, dtype)
npu_dynamic_quant(input, *, smooth_scales=None, group_index=None, dst_type=None)
npu_fast_gelu(self)
npu_gelu(self, *, approximate='none')
npu_iou(bboxes, gtboxes, mode=0)
npu_linear(input, weight, bias=None)
npu_moe_compute_expert_tokens(sorted_expert_for_source_row, num_expert)
npu_moe_finalize_routing(expanded_permuted_rows, skip1, skip2, bias, scales, \
expanded_src_to_dst_row, expert_for_source_row, drop_pad_mode=0, k=1)
npu_moe_gating_top_k_softmax(x, finished=None, k=1)
npu_moe_init_routing(x, row_idx, expert_idx, active_num)
npu_moe_token_permute(tokens, indices, num_out_tokens=None, padded_mode=False)
npu_moe_token_unpermute(permuted_tokens, sorted_indices, probs=None, \
padded_mode=False, restore_shape=None)
npu_one_hot(self, num_classes=-1, depth=1, on_value=1, off_value=0)
npu_quant_matmul(x1, x2, scale, *, offset=None, pertoken_scale=None, bias=None, \
output_dtype=None)
npu_quantize(self, scales, zero_points, dtype, axis=1, div_mode=True)
npu_rms_norm(self, gamma, epsilon=1e-06)
npu_scaled_masked_softmax(x, mask, scale=1, fixed_triu_mask=False)
npu_silu(self)
npu_swiglu(self, dim=-1)
npu_transpose(self, perm, require_contiguous=True)
"""


@pytest.mark.parametrize("line", SIGNATURES.split("\n")[1:-1])
def test_signatures_are_the_vendors(line):
    name, _, parameters = line.partition("(")
    wanted = inspect.signature(eval(f"lambda {parameters[:-1]}: None"))

    found = inspect.signature(getattr(torch_npu, name))

    plain = [p.replace(annotation=p.empty) for p in found.parameters.values()]
    assert plain == list(wanted.parameters.values())


X, W8 = torch.ones(2, 4), torch.ones(4, 2, dtype=torch.int8)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: torch_npu.npu_moe_gating_top_k_softmax(X, k=5), "k must be 1 to 4"),
        (
            lambda: torch_npu.npu_moe_finalize_routing(
                X, None, None, None, None, MIXED[:2], None, 4
            ),
            "drop_pad_mode must be 0 to 3",
        ),
        (
            lambda: torch_npu.npu_moe_token_permute(X, MIXED[:2], padded_mode=True),
            "value of padded_mode here: see docs/torch_npu.md",
        ),
        (lambda: torch_npu.npu_grouped_matmul([X], [X], scale=[X]), "value of scale"),
        *(
            (
                lambda x=x, w=w: torch_npu.npu_grouped_matmul(
                    [x.npu()], [w.npu()], group_list=ENDS.npu(), split_item=3
                ),
                "cannot multiply",
            )
            for x, w in (
                (X, torch.ones(3, 5, 2)),
                (X, torch.ones(2, 4, 2)),
                (X, torch.ones(3, 4, 2).half()),
            )
        ),
        (
            lambda: torch_npu.npu_dynamic_quant(X, dst_type=torch.quint4x2),
            "value of dst_type",
        ),
        (lambda: torch_npu.npu_quantize(X, X, None, torch.quint4x2), "value of dtype"),
        (lambda: torch_npu.npu_quant_matmul(X, W8, X), "takes int8"),
        (
            lambda: torch_npu.npu_moe_init_routing_v2(
                X, MIXED.view(2, 4), quant_mode=0
            ),
            "value of quant_mode",
        ),
        (
            lambda: torch_npu.npu_fused_infer_attention_score(X, X, X, query_rope=X),
            "value of query_rope",
        ),
        (lambda: torch_npu.npu_quant_matmul(W8, W8, W8), "value of scale"),
        (
            lambda: torch_npu.npu_incre_flash_attention(X, X, X, block_table=X),
            "value of block_table",
        ),
    ],
)
def test_what_is_refused_says_so(call, words):
    with pytest.raises(RuntimeError, match=words):
        call()
