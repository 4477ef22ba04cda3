"""Tracers see the operators of torch, and not how this device runs them.

Kernels at autograd's key, and of operators that torch composes, are the places where
a device can show in a trace: torch.export, compiled autograd and FakeTensorMode are
asked about each.
"""

import re
from collections import Counter
from pathlib import Path

import pytest
import torch
from op_samples import OPS, first_samples
from torch import Tensor, nn
from torch._dynamo import compiled_autograd
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_map

from tests.ecosystem.both import alike

DISPATCHER = torch._C
SOURCES = Path(__file__).parents[2] / "csrc"

# Composites that read their arguments' memory, which torch does not say of them.
READ_MEMORY = {
    *("choose_qparams_optimized", "fbgemm_linear_fp16_weight"),
    *("fbgemm_linear_fp16_weight_fp32_activation", "fbgemm_linear_int8_weight"),
    *("fbgemm_linear_int8_weight_fp32_activation", "fbgemm_linear_quantize_weight"),
    *("fbgemm_pack_gemm_matrix_fp16", "fbgemm_pack_quantized_matrix"),
    *("_saturate_weight_to_fp16", "_rowwise_prune", "_sobol_engine_draw"),
    *("_sobol_engine_ff_", "_sobol_engine_initialize_state_"),
    *("_sobol_engine_scramble_",),
    # They ask what kind of memory a tensor has.
    *("_reshape_from_tensor", "_has_compatible_shallow_copy_type"),
}


def has_kernel(name, key):
    return DISPATCHER._dispatch_has_kernel_for_dispatch_key(name, key)


def operators():
    names = DISPATCHER._dispatch_get_all_op_names()
    return [name for name in names if name.startswith("aten::")]


def base(name):
    return name.removeprefix("aten::").partition(".")[0]


OURS_AT_AUTOGRAD = {n for n in operators() if has_kernel(n, "AutogradPrivateUse1")}


def test_what_torch_composes_is_composed():
    """torch.export keeps a composite that a device has a kernel of."""
    kept = [
        name
        for name in operators()
        if has_kernel(name, "CompositeImplicitAutograd")
        and has_kernel(name, "PrivateUse1")
        and not has_kernel(name, "CPU")
        and base(name) not in READ_MEMORY
    ]
    assert kept == []


def test_nodes_of_autograd_are_torchs():
    """A node of our own would have to be known to compiled autograd."""
    declared = re.compile(
        r"(class|struct)\s+\w+[^;{]*:\s*public\s+[\w:]*(Node|Function<)"
    )
    found = [
        str(path.relative_to(SOURCES))
        for path in sorted([*SOURCES.rglob("*.h"), *SOURCES.rglob("*.cpp")])
        if declared.search(path.read_text())
    ]
    assert found == []


def traced(call, arguments):
    """Count what a trace of the call and of its backward has; None: it has no trace."""
    leaves, _ = tree_flatten(arguments)
    inputs = [t for t in leaves if isinstance(t, Tensor) and t.requires_grad]

    def step(*args):
        flat, spec = tree_flatten(arguments)
        given = iter(args)
        flat = [next(given) if isinstance(x, Tensor) else x for x in flat]
        results, _ = tree_flatten(call(spec.unflatten(flat)))
        wanted = [t for t in results if isinstance(t, Tensor) and t.requires_grad]
        wrt = [t for t in flat if isinstance(t, Tensor) and t.requires_grad]
        if not wanted or not inputs:
            return results
        return torch.autograd.grad(
            [t.sum() if not t.is_complex() else t.abs().sum() for t in wanted],
            wrt,
            allow_unused=True,
        )

    tensors = [t for t in leaves if isinstance(t, Tensor)]
    try:
        graph = make_fx(step, tracing_mode="fake")(*tensors).graph
    except Exception:  # whatever the operator cannot do under FakeTensorMode
        return None
    return called(graph)


def called(graph):
    return Counter(str(n.target) for n in graph.nodes if n.op == "call_function")


def samples():
    named = {base(name) for name in OURS_AT_AUTOGRAD}
    for op in OPS:
        if op.aten_name not in named:
            continue
        args, kwargs = next(first_samples(op))
        yield op.formatted_name, op.op, args, kwargs


def on(device, value):
    def move(x):
        if isinstance(x, Tensor):
            return x.detach().to(device).requires_grad_(x.requires_grad)
        return torch.device(device) if isinstance(x, torch.device) else x

    return tree_map(move, value)


def test_a_trace_has_what_it_has_on_another_device():
    """cpu's, or that of a device which has no kernels at all."""
    assert len(OURS_AT_AUTOGRAD) > 100
    differ = {}
    compared = 0
    for name, function, args, kwargs in samples():

        def call(packed, function=function):
            return function(*packed[0], **packed[1])

        ours = traced(call, on("npu", (args, kwargs)))
        cpus = traced(call, on("cpu", (args, kwargs)))
        compared += ours is not None
        if ours != cpus and ours != traced(call, on("meta", (args, kwargs))):
            differ[name] = ours, cpus
    assert differ == {}
    assert compared > 100


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.recurrent = nn.LSTM(4, 8, num_layers=2)
        self.pool = nn.MaxPool1d(2)
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(self.pool(self.recurrent(x)[0]))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_an_exported_program_is_taken_apart_as_on_cpu(mode):
    def exported(device):
        model = Layers().to(device)
        with mode():
            program = torch.export.export(model, (torch.rand(5, 2, 4, device=device),))
        return set(called(program.run_decompositions().graph))

    assert exported("npu") == exported("cpu")


FAKE = {
    "lstm": lambda d: nn.LSTM(3, 4, device=d)(torch.rand(5, 2, 3, device=d))[0],
    "linear": lambda d: nn.Linear(3, 4, device=d)(torch.rand(5, 2, 3, device=d)),
    "matmul": lambda d: torch.matmul(
        *(torch.rand(2, 3, 4, device=d), torch.rand(4, 5, device=d)),
        out=torch.empty(0, device=d),
    ),
    "max_pool1d": lambda d: nn.MaxPool1d(2)(torch.rand(1, 2, 8, device=d)),
    "copy_": lambda d: torch.empty(3, device=d).copy_(torch.rand(3, device=d)),
}


@pytest.mark.parametrize(
    "mode", [torch.inference_mode, torch.no_grad, torch.enable_grad]
)
@pytest.mark.parametrize("name", FAKE)
def test_fake_tensors_have_shapes_and_launch_nothing(name, mode):
    launched = torch.npu.memory_stats()["allocation.all.allocated"]
    with FakeTensorMode(), mode():
        fake = FAKE[name]("npu")
    assert torch.npu.memory_stats()["allocation.all.allocated"] == launched
    real = FAKE[name]("cpu")
    assert fake.device.type == "npu"
    assert (fake.shape, fake.dtype) == (real.shape, real.dtype)


@pytest.mark.parametrize("name", ["linear", "max_pool1d"])
def test_inference_mode_computes_as_without_gradients(name):
    torch.manual_seed(0)
    with torch.inference_mode():
        inferred = FAKE[name]("npu")
    torch.manual_seed(0)
    with torch.no_grad():
        assert torch.equal(inferred, FAKE[name]("npu"))


def training(model, x):
    model.zero_grad()
    model(x).square().sum().backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("compiled", [False, True])
def test_compiled_autograd_takes_over_after_ordinary_steps(compiled):
    torch.manual_seed(0)
    model, x = Layers().npu(), torch.rand(5, 2, 4).npu()
    run = torch.compile(model, backend="aot_eager") if compiled else model
    for _ in range(3):
        ordinary = training(run, x)

    with compiled_autograd._enable(torch.compile(backend="aot_eager")):
        found = training(run, x)

    torch.testing.assert_close(found, ordinary)


@pytest.mark.parametrize("wanted", ["input", "weight", "bias", "input weight"])
def test_a_layer_of_which_parts_are_frozen_is_differentiated_by_everybody(wanted):
    torch.manual_seed(0)
    shapes = {"input": (5, 2, 4), "weight": (3, 4), "bias": (3,)}
    parts = {name: torch.rand(shape) for name, shape in shapes.items()}

    def gradients(device):
        on_device = {name: t.to(device) for name, t in parts.items()}
        wrt = [on_device[name].requires_grad_() for name in wanted.split()]
        loss = nn.functional.linear(**on_device).square().sum()
        first = torch.autograd.grad(loss, wrt, create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), wrt)
        for t in wrt:
            t.grad = None
        with compiled_autograd._enable(torch.compile(backend="aot_eager")):
            nn.functional.linear(**on_device).square().sum().backward()
        return (*first, *second, *(t.grad for t in wrt))

    alike(gradients)


@torch._dynamo.config.patch(allow_rnn=True)
def test_a_recurrent_layer_trains_compiled():
    torch.manual_seed(0)
    model, x = nn.LSTM(4, 8).npu(), torch.rand(5, 2, 4).npu()

    def loss(x):
        return model(x)[0].square().sum()

    loss(x).backward()
    eager = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    torch.compile(loss)(x).backward()

    torch.testing.assert_close([p.grad for p in model.parameters()], eager)


class TestLinear:
    """The layer is one node, whose formulas are torch's."""

    X = torch.linspace(-1, 1, 24).view(2, 3, 4)

    def layer(self, device):
        torch.manual_seed(0)
        return nn.Linear(4, 5).to(device)

    def input(self, device):
        return self.X.clone().to(device).requires_grad_()

    @pytest.mark.parametrize("frozen", ["weight", "bias", "input"])
    def test_what_needs_no_gradient_may_be_written_before_backward(self, frozen):
        found = []
        for device in ("npu", "cpu"):
            layer, x = self.layer(device), self.input(device)
            named = {"weight": layer.weight, "bias": layer.bias, "input": x}
            named[frozen].requires_grad_(False)
            y = layer(x).sum()
            with torch.no_grad():
                unread = {"weight": x, "input": layer.weight}.get(frozen, layer.bias)
                unread.add_(1)
            y.backward()
            found.append([t.grad for t in named.values() if t.requires_grad])
        torch.testing.assert_close(*found, check_device=False)

    def test_an_input_is_not_kept_for_a_frozen_weight(self):
        layer = nn.Linear(256, 8).npu()
        layer.weight.requires_grad_(False)
        x = torch.rand(512, 256).npu().requires_grad_()
        torch.npu.synchronize()
        held = torch.npu.memory_allocated()
        y = layer(x * 1)
        assert torch.npu.memory_allocated() - held < x.nbytes
        y.sum().backward()

    def test_transforms_of_functions(self):
        def of(device):
            layer, x = self.layer(device), self.X.to(device)
            parameters = dict(layer.named_parameters())

            def loss(parameters, x):
                return torch.func.functional_call(layer, parameters, x).square().sum()

            each = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, x)
            tangents = torch.func.jvp(layer, (x,), (x,))
            hessian = torch.func.hessian(lambda t: loss(parameters, t))(x)
            return [*each.values(), *tangents, hessian]

        alike(of)
