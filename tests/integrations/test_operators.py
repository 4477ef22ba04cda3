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

HALVES = (torch.bfloat16, torch.float16)


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


def turned(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


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


def attention(q, k, v, hidden=None, heads=2):
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (q, k, v))
    seen = None if hidden is None else ~hidden
    found = F.scaled_dot_product_attention(q, k, v, seen, scale=0.5)
    return found.transpose(1, 2).flatten(2)


EXPERTS = torch.tensor([[2, 0], [1, 2], [0, 1], [2, 1]], dtype=torch.int32)
COLUMNS = torch.arange(8, dtype=torch.int32).view(2, 4).t()
MIXED = torch.tensor([5, 0, 3, 7, 1, 6, 2, 4], dtype=torch.int32)
DROPPED = torch.tensor([5, -1, 3, 7, 1, -1, 2, 4], dtype=torch.int32)
ENDS, SIZES = torch.tensor([3, 3, 7]), torch.tensor([3, 0, 4])
BEHIND = torch.arange(6) >= torch.tensor([4, 6])[:, None, None, None]
CAUSAL = torch.ones(6, 6, dtype=torch.bool).triu(1)
# The operator, its arguments, keywords, and its formula with what that takes.
CASES: list[tuple[str, tuple[Any, ...], dict[str, Any], Any]] = [
    ("npu_rms_norm", (randn(4, 8), randn(8), 1e-5), {}, rms),
    ("npu_add_rms_norm", (randn(4, 8), randn(4, 8), randn(8)), {}, add_rms),
    (
        "npu_deep_norm",
        (randn(4, 2, 8), randn(4, 2, 8), randn(2, 8), randn(2, 8)),
        {},
        deep_norm,
    ),
    (
        "npu_scaled_masked_softmax",
        (randn(2, 2, 4, 8), randn(2, 1, 4, 8) > 0, 0.5),
        {},
        softmax,
    ),
    (
        "npu_scaled_masked_softmax",
        (randn(4, 4), torch.zeros(4, 4, dtype=torch.bool), 2.0, True),
        {},
        lambda x, mask, scale, _: softmax(x, CAUSAL[:4, :4], scale),
    ),
    ("npu_gelu", (randn(9),), {"approximate": "tanh"}, F.gelu),
    ("npu_fast_gelu", (randn(9),), {}, lambda x: x / (1 + (-1.702 * x).exp())),
    ("npu_silu", (randn(9),), {}, lambda x: x / (1 + (-x).exp())),
    (
        "npu_swiglu",
        (randn(3, 8),),
        {},
        lambda x: x[:, :4] * x[:, :4].sigmoid() * x[:, 4:],
    ),
    (
        "npu_apply_rotary_pos_emb",
        (*(randn(2, 3, h, 8) for h in (4, 2)), *(randn(2, 3, 1, 8) for _ in "cs")),
        {},
        lambda q, k, cos, sin: (turned(q, cos, sin), turned(k, cos, sin)),
    ),
    (
        "npu_linear",
        (randn(3, 4), randn(5, 4), randn(5)),
        {},
        lambda x, w, b: x @ w.T + b,
    ),
    ("npu_dtype_cast", (randn(5), torch.int32), {}, lambda x, _: x.trunc().int()),
    ("npu_transpose", (randn(2, 3, 4), (2, 0, 1)), {}, lambda x, _: x.movedim(2, 0)),
    (
        "npu_confusion_transpose",
        (randn(2, 3, 8), (0, 2, 1, 3), (2, 3, 4, 2), False),
        {},
        lambda x, *_: x.view(2, 3, 4, 2).transpose(1, 2),
    ),
    (
        "npu_confusion_transpose",
        (randn(2, 4, 3, 2), (0, 2, 1, 3), (2, 3, 8), True),
        {},
        lambda x, *_: x.transpose(1, 2).reshape(2, 3, 8),
    ),
    ("npu_one_hot", (ints(6, 4, 3), -1, 5, 2.0, -1.0), {}, one_hot),
    ("npu_one_hot", (ints(5, 4, 3), 1, 5, 1, 0), {}, one_hot),
    ("npu_moe_gating_top_k_softmax", (randn(4, 6), None, 2), {}, gating),
    ("npu_moe_gating_top_k_softmax", (randn(4, 6), randn(4) > 0, 3), {}, gating),
    ("npu_moe_init_routing", (randn(4, 8), COLUMNS, EXPERTS, 3), {}, init_routing),
    (
        "npu_moe_compute_expert_tokens",
        (torch.tensor([0, 0, 2, 2, 2, 3], dtype=torch.int32), 5),
        {},
        lambda experts, n: torch.tensor([2, 2, 5, 6, 6], dtype=torch.int32),
    ),
    *(
        (
            "npu_moe_finalize_routing",
            (
                rows,
                *(randn(4, 5) for _ in "ab"),
                randn(3, 5),
                randn(4, 2),
                places,
                EXPERTS,
                mode,
            ),
            {},
            finalize,
        )
        for mode, rows, places in (
            (0, randn(8, 5), MIXED),
            (1, randn(2, 4, 5), DROPPED),
            (2, randn(8, 5), MIXED),
            (3, randn(2, 4, 5), DROPPED),
        )
    ),
    ("npu_moe_token_permute", (randn(4, 5), EXPERTS, None), {}, permute),
    ("npu_moe_token_permute", (randn(4, 5), EXPERTS, 6), {}, permute),
    ("npu_moe_token_permute", (randn(4, 5), EXPERTS[:, 0], None), {}, permute),
    ("npu_moe_token_unpermute", (randn(8, 5), MIXED, randn(4, 2)), {}, unpermute),
    ("npu_moe_token_unpermute", (randn(6, 5), MIXED, randn(4, 2)), {}, unpermute),
    (
        "npu_grouped_matmul",
        ([randn(7, 5)], [randn(3, 5, 6)]),
        {"group_list": ENDS, "split_item": 3, "bias": [randn(3, 6)]},
        grouped,
    ),
    (
        "npu_grouped_matmul",
        ([randn(7, 8)], [randn(3, 8, 4)]),
        {"group_list": SIZES, "split_item": 3, "group_list_type": 1},
        grouped,
    ),
    (
        "npu_grouped_matmul",
        ([randn(7, 5).T], [randn(7, 3)]),
        {"group_list": ENDS, "split_item": 3, "group_type": 2},
        grouped,
    ),
    (
        "npu_grouped_matmul",
        ([randn(2, 5), randn(4, 3)], [randn(5, 6), randn(3, 2)]),
        {"bias": [randn(6), randn(2)]},
        lambda x, w, bias: [a @ b + c for a, b, c in zip(x, w, bias, strict=True)],
    ),
    (
        "npu_quantize",
        (randn(3, 4) * 9, randn(4).abs(), ints(9, 4), torch.quint8),
        {},
        quantize,
    ),
    (
        "npu_quantize",
        (randn(3, 4) * 9, randn(4), randn(4), torch.qint8, -1, False),
        {},
        quantize,
    ),
    (
        "npu_dynamic_quant",
        (torch.cat((randn(3, 8), torch.zeros(1, 8))),),
        {"smooth_scales": randn(8)},
        dynamic_quant,
    ),
    *(
        (
            "npu_quant_matmul",
            (
                ints(128, 5, 2000, low=-128, dtype=torch.int8),
                ints(128, 2000, 6, low=-128, dtype=torch.int8),
                randn(6) / 9000,
            ),
            {"pertoken_scale": randn(5), "bias": bias, "output_dtype": dtype, **more},
            quant_matmul,
        )
        for bias, dtype, more in (
            (ints(9999, 6), torch.float32, {}),
            (randn(6), torch.bfloat16, {}),
            (ints(9999, 6), None, {"offset": randn(6)}),
        )
    ),
    (
        "npu_prompt_flash_attention",
        tuple(randn(2, 6, 8) for _ in "qkv"),
        {"num_heads": 2, "scale_value": 0.5, "actual_seq_lengths_kv": [4, 6]},
        lambda q, k, v, **_: attention(q, k, v, BEHIND),
    ),
    (
        "npu_prompt_flash_attention",
        tuple(randn(2, 6, 8) for _ in "qkv"),
        {"num_heads": 2, "scale_value": 0.5, "atten_mask": CAUSAL},
        lambda q, k, v, **_: attention(q, k, v, CAUSAL),
    ),
    (
        "npu_incre_flash_attention",
        (randn(2, 1, 8), randn(2, 6, 8), randn(2, 6, 8)),
        {"num_heads": 2, "scale_value": 0.5, "actual_seq_lengths": [4, 6]},
        lambda q, k, v, **_: attention(q, k, v, BEHIND),
    ),
    (
        "npu_incre_flash_attention",
        (randn(2, 1, 8), randn(2, 6, 8), randn(2, 6, 8)),
        {"num_heads": 2, "scale_value": 0.5, "atten_mask": BEHIND[:, 0, 0]},
        lambda q, k, v, **_: attention(q, k, v, BEHIND),
    ),
]
NAMES = [f"{name}-{i}" for i, (name, *_) in enumerate(CASES)]
# Their formulas are of float32, or of integers.
EXACT = {"npu_one_hot", "npu_dtype_cast", "npu_quantize", "npu_dynamic_quant"}
EXACT |= {"npu_quant_matmul", "npu_moe_compute_expert_tokens"}


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


def on_npu(args: Any, kwargs: Any, dtype=torch.float32, grad=False) -> Any:
    def change(x: torch.Tensor) -> torch.Tensor:
        if not x.is_floating_point():
            return x.npu()
        return x.to(dtype).npu().requires_grad_(grad)

    return mapped((args, kwargs), change)


@pytest.mark.parametrize(("name", "args", "kwargs", "formula"), CASES, ids=NAMES)
def test_values_and_gradients(name, args, kwargs, formula):
    differentiable = name not in EXACT
    args, kwargs = on_npu(args, kwargs, grad=differentiable)
    as_cpu = lambda x: x.detach().cpu().requires_grad_(x.requires_grad)  # noqa: E731
    cpu_args, cpu_kwargs = mapped((args, kwargs), as_cpu)

    found = results(getattr(torch_npu, name)(*args, **kwargs))

    expected = results(formula(*cpu_args, **cpu_kwargs))
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine.cpu(), theirs, rtol=1e-4, atol=1e-5)
    by_name = results(getattr(torch.ops.npu, name)(*args, **kwargs))
    assert all(map(torch.equal, by_name, found))
    if not differentiable:
        return
    weights = [torch.randn_like(x) for x in expected if x.requires_grad]
    for outputs, w in ((found, [w.npu() for w in weights]), (expected, weights)):
        torch.autograd.backward([x for x in outputs if x.requires_grad], w)
    seen: list[Any] = []
    mapped((args, kwargs), lambda x: seen.append(x.grad))
    wanted: list[Any] = []
    mapped((cpu_args, cpu_kwargs), lambda x: wanted.append(x.grad))
    assert any(x is not None for x in wanted)
    for mine, theirs in zip(seen, wanted, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            torch.testing.assert_close(mine.cpu(), theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("name", "args", "kwargs", "formula"), CASES, ids=NAMES)
def test_half_precision_gives_half_precision(name, args, kwargs, formula, dtype):
    if name in EXACT:
        return
    args, kwargs = on_npu(args, kwargs, dtype)

    found = results(getattr(torch_npu, name)(*args, **kwargs))

    cpu_args, cpu_kwargs = mapped((args, kwargs), lambda x: x.cpu())
    for mine, theirs in zip(
        found, results(formula(*cpu_args, **cpu_kwargs)), strict=True
    ):
        torch.testing.assert_close(mine.cpu(), theirs, rtol=3e-2, atol=5e-2)


@pytest.mark.parametrize(("name", "args", "kwargs", "formula"), CASES, ids=NAMES)
def test_shapes_are_known_without_data_and_to_the_compiler(name, args, kwargs, formula):
    args, kwargs = on_npu(args, kwargs)
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
        for name, args, kwargs, _ in CASES:
            args, kwargs = on_npu(args, kwargs)
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
        (
            lambda: torch_npu.npu_dynamic_quant(X, dst_type=torch.quint4x2),
            "value of dst_type",
        ),
        (lambda: torch_npu.npu_quantize(X, X, None, torch.quint4x2), "value of dtype"),
        (lambda: torch_npu.npu_quant_matmul(X, W8, X), "takes int8"),
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
