"""torch.autocast("npu") and its GradScaler, against torch's lists and cpu."""

import concurrent.futures
import copy
import itertools

import pytest
import torch
from host_waits import host_waits
from step_loop import plain_loop
from torch import nn
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.testing._internal.autocast_test_lists import AutocastTestLists

LOW = [torch.float16, torch.bfloat16]
# torch's lists, made on the host and moved; nothing of ours says what is in them.
LISTS = AutocastTestLists("cpu")
NAMESPACES = {"torch": torch, "nn": torch._C._nn, "linalg": torch._C._linalg}


def _cases(kind):
    for name, entries in vars(LISTS).items():
        prefix, _, rest = name.partition("_")
        if prefix not in NAMESPACES or rest != kind:
            continue
        for function, args, *more in entries:
            if function.startswith("cudnn"):  # another library's
                continue
            if isinstance(args, str):  # einsum's equation
                args = args, torch.ones(1, 2, 3, 4), torch.ones(1, 5, 3, 4)
            options = more[0] if more and isinstance(more[0], dict) else {}
            yield getattr(NAMESPACES[prefix], function), args, options


def _cast(value, low):
    """Move arguments to npu; their float16 becomes `low`."""
    if isinstance(value, torch.Tensor):
        return value.to("npu", low if value.dtype == torch.float16 else value.dtype)
    if isinstance(value, tuple | list):
        return type(value)(_cast(v, low) for v in value)
    return value


@pytest.mark.parametrize("low", LOW)
@pytest.mark.parametrize(
    ("kind", "at_least"), [("fp16", 27), ("fp32", 47), ("need_autocast_promote", 10)]
)
def test_operators_compute_in_the_type_of_their_list(kind, at_least, low):
    found = {}
    for function, args, options in _cases(kind):
        with torch.autocast("npu", dtype=low):
            results = function(*_cast(args, low), **options)
        if isinstance(results, torch.Tensor):
            results = (results,)
        found.setdefault(function.__name__, set()).update(r.dtype for r in results)

    assert len(found) >= at_least
    expected = low if kind == "fp16" else torch.float32
    assert {n: t for n, t in found.items() if t != {expected}} == {}


@pytest.mark.parametrize("low", LOW)
def test_what_no_list_names_promotes_as_without_autocast(low):
    for name, args, expected in LISTS.torch_expect_builtin_promote:
        with torch.autocast("npu", dtype=low):
            result = getattr(torch, name)(*_cast(args, low))
        if isinstance(result, torch.Tensor):
            assert result.dtype == expected, name


def test_binary_cross_entropy_is_refused_and_says_what_to_use():
    (_, args, module), *_ = LISTS.banned
    args = _cast(args, torch.float16)

    with torch.autocast("npu"), pytest.raises(RuntimeError, match="with_logits"):
        module.binary_cross_entropy(*args)
    with torch.autocast("npu"), torch.autocast("npu", enabled=False):
        module.binary_cross_entropy(*args)


def test_values_are_those_of_cpu_in_the_same_types():
    x, w = torch.randn(4, 8).bfloat16(), torch.randn(3, 8).bfloat16()

    with torch.autocast("npu", dtype=torch.bfloat16):
        got = torch.softmax(nn.functional.linear(x.float().npu(), w.float().npu()), -1)

    expected = torch.softmax(nn.functional.linear(x, w).float(), -1)
    torch.testing.assert_close(got.cpu(), expected, rtol=0, atol=0)


def test_float64_and_other_devices_are_left_alone():
    a = torch.randn(2, 2, dtype=torch.float64)
    with torch.autocast("npu"):
        assert (a.npu() @ a.npu()).dtype == torch.float64
        assert (a.float() @ a.float()).dtype == torch.float32
    with torch.autocast("cpu"):
        assert (a.float().npu() @ a.float().npu()).dtype == torch.float32


def test_a_weight_is_cast_once_in_a_region_and_anew_in_the_next():
    weight = nn.Parameter(torch.ones(2, 2).npu())
    x = torch.ones(2, 2).npu()

    with torch.autocast("npu"):
        first, second = weight.matmul(x), weight.matmul(x)
    cast = first.grad_fn.next_functions[0][0]
    assert cast is second.grad_fn.next_functions[0][0]
    with torch.no_grad():
        weight.mul_(2)
    with torch.autocast("npu"):
        assert weight.matmul(x).sum().item() == 16


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.Adam(p, lr=0.01, foreach=True),
        lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    ],
    ids=["sgd", "adam-foreach", "adamw-fused"],
)
def test_training_with_a_grad_scaler_skips_the_step_that_overflows(make):
    trained = []
    for device in ("cpu", "npu"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).to(device)
        scaler = torch.amp.GradScaler(device, init_scale=2.0**10, growth_interval=2)
        factors = iter((1, 1, float("inf"), 1, 1))
        x = torch.linspace(-1, 1, 32).view(4, 8)
        plain_loop(
            model,
            make(model.parameters()),
            [(x, x)] * 5,
            scaler=scaler,
            autocast=torch.bfloat16,
            loss_fn=lambda y, _, by=factors: y.float().pow(2).mean() * next(by),
        )
        # 2 good steps double it, the bad one halves it, 2 good ones double it.
        assert scaler.get_scale() == 2.0**11
        trained.append([p.detach().cpu() for p in model.parameters()])

    assert all(p.isfinite().all() for p in trained[1])
    torch.testing.assert_close(*trained, rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize("kind", [torch.amp.GradScaler, ShardedGradScaler])
def test_a_scaler_that_names_no_device_is_the_npus(kind):
    scaler = kind(init_scale=8.0)

    assert scaler.scale(torch.ones(1, device="npu")).item() == 8
    scaler.update(torch.tensor(4.0, device="npu"))
    assert scaler.get_scale() == 4


@pytest.mark.parametrize(("fused", "waits"), [(True, 0), (False, 3)])
def test_the_only_wait_of_a_step_is_the_scalers_own(fused, waits):
    model = nn.Linear(8, 8).npu()
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
    scaler = torch.amp.GradScaler("npu")
    x = torch.ones(4, 8).npu()

    def step():
        with torch.autocast("npu"):
            loss = model(x).float().mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    step()
    texts = host_waits(lambda: [step() for _ in range(3)])

    assert len(texts) == waits, texts
    assert all("_local_scalar_dense" in text for text in texts)


def test_unscale_then_clip_as_in_torchs_recipe():
    model = nn.Linear(4, 4).npu()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scaler = torch.npu.amp.GradScaler(init_scale=1024.0)
    with torch.npu.amp.autocast():
        loss = model(torch.ones(2, 4).npu()).float().sum()
    scaler.scale(loss).backward()

    scaler.unscale_(optimizer)

    torch.testing.assert_close(model.bias.grad.cpu(), torch.full((4,), 2.0))
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm().item()
    assert norm == pytest.approx(0.5, rel=1e-4)


def test_custom_functions_choose_their_own_type():
    seen = []

    class Double(torch.autograd.Function):
        @staticmethod
        @torch.npu.amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx, x):
            seen.append((x.dtype, torch.is_autocast_enabled("npu")))
            return x * 2

        @staticmethod
        @torch.npu.amp.custom_bwd
        def backward(ctx, grad):
            seen.append((grad.dtype, torch.is_autocast_enabled("npu")))
            return grad * 2

    x = torch.ones(2, dtype=torch.float16).npu().requires_grad_()
    with torch.autocast("npu"):
        y = Double.apply(x)
    y.sum().backward()

    assert seen == [(torch.float32, False), (torch.float32, False)]
    assert x.grad.cpu().tolist() == [2, 2]


def test_recurrent_and_attention_layers_run_in_low_precision():
    x = torch.randn(3, 2, 8).npu()
    layers = [nn.LSTM(8, 8), nn.GRU(8, 8), nn.MultiheadAttention(8, 2)]

    for layer, low in itertools.product(layers, LOW):
        layer = copy.deepcopy(layer).npu()
        with torch.autocast("npu", dtype=low):
            y = layer(x, x, x) if isinstance(layer, nn.MultiheadAttention) else layer(x)
            assert y[0].dtype == low, layer
        y[0].float().sum().backward()
        assert all(p.grad.dtype == torch.float32 for p in layer.parameters())


def test_functions_that_name_no_device_mean_npu():
    def state():
        return torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype()

    outside = state()
    with torch.autocast("npu", torch.bfloat16):
        assert state() == (True, torch.bfloat16)
        assert not torch.is_autocast_enabled("cuda")
        assert not torch.is_autocast_enabled("cpu")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            assert pool.submit(state).result() == outside
        # As libraries switch it off for a while.
        before = torch.is_autocast_enabled()
        torch.set_autocast_enabled(False)
        assert not torch.is_autocast_enabled("npu")
        torch.set_autocast_enabled(before)
        torch.set_autocast_gpu_dtype(torch.float16)
        assert torch.get_autocast_dtype("npu") == torch.float16
    with torch.autocast("cpu"):
        assert state() == outside

    assert state() == outside == (False, torch.float16)
    assert not torch.is_autocast_enabled("cuda")


@pytest.mark.parametrize("low", LOW)
@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_inference_of_attention_casts_as_training_does(low, how):
    attention = nn.MultiheadAttention(16, 4, batch_first=True)
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2)
    x = torch.randn(2, 5, 16).npu()
    for module in (attention, layer, encoder):
        module.eval().npu()

    def run():
        return attention(x, x, x, need_weights=False)[0], layer(x), encoder(x)

    called = run if how == "eager" else torch.compile(run, backend="eager")
    with torch.autocast("npu", low):
        with torch.enable_grad():
            slow = run()
        with torch.no_grad():
            got = called()
    with torch.no_grad():
        outside = attention(x, x, x, need_weights=False)[0]

    assert got[0].dtype == low
    assert outside.dtype == torch.float32
    torch.testing.assert_close(got, slow, rtol=0, atol=0)
