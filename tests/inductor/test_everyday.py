"""What programs write around and into compiled functions."""

import copy

import pytest
import torch
import torch.nn.functional as F
from compiled import check_as_on_cpu, outcome
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.graphs.captured import captured


def check_module(cpu, x, **close):
    """Compare results, layouts, gradients and buffers with cpu's."""
    npu = copy.deepcopy(cpu).npu()
    here = x.detach().npu().requires_grad_(x.requires_grad)

    want = outcome(cpu, (x,), [cpu])
    got = outcome(torch.compile(npu), (here,), [npu])

    torch.testing.assert_close(got, want, **close)


def test_buffers_changed_in_place_and_views_as_results():
    def function(x, total):
        total.add_(x.sum(0))
        x[:, 1].mul_(2)
        y = torch.cat([x, x.sin()])
        return y.t()[1:], y, x.view(-1), total[:2]

    check_as_on_cpu(function, torch.randn(4, 6), torch.zeros(6), fullgraph=True)


def test_host_scalars_are_read_when_the_call_is_made():
    def function(x, s, t):
        return s * x + t, torch.where(s > 0, x, t), x.to(torch.int64) + 1

    x, s, t = torch.randn(5), torch.tensor(3.0), torch.tensor(2.0)
    compiled = torch.compile(function)
    here = x.npu()

    want = [y.clone() for y in function(x, s, t)]
    got = compiled(here, s, t)
    s.zero_()
    t.zero_()

    assert {y.device.type for y in got} == {"npu"}
    torch.testing.assert_close([y.cpu() for y in got], want)


def test_inputs_whose_memory_cannot_be_read_as_it_is_are_refused():
    compiled = torch.compile(lambda x: x.sin() + 1)
    x = torch.ones(8, device="npu")
    compiled(x)
    compiled(x)
    x.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="needs 32 bytes of its storage, which has"):
        compiled(x)
    x.untyped_storage().resize_(32)
    x.fill_(0)
    assert compiled(x).tolist() == [1.0] * 8

    negative = torch.ones(8, dtype=torch.complex64, device="npu").conj().imag
    with pytest.raises(NotImplementedError, match=r"negated lazily.*resolve_neg"):
        compiled(negative)
    assert compiled(negative.resolve_neg()).tolist() == [1.0] * 8


def test_host_and_device_tensors_in_one_function():
    def function(x, y):
        a = (x.sin() + 1).sum(0)
        b = (y.cos() * 2).to(x.device)
        return a + b, (a * b).cpu() + y

    x, y = torch.randn(4, 6), torch.randn(6)
    got = torch.compile(function)(x.npu(), y)

    assert [t.device.type for t in got] == ["npu", "cpu"]
    torch.testing.assert_close([t.cpu() for t in got], list(function(x, y)))


NIGHTLY = pytest.mark.nightly


@NIGHTLY
def test_results_that_depend_on_data_break_the_graph():
    def function(x):
        y = x * 2
        if y.sum().item() > 0:
            return y[y > 0] + 1
        return y - 1

    for sign in (1, -1):
        check_as_on_cpu(function, sign * torch.arange(5.0))


@pytest.mark.parametrize(
    "kind", ["Adam", *(pytest.param(k, marks=NIGHTLY) for k in ("AdamW", "SGD"))]
)
def test_a_compiled_optimizer_takes_cpus_steps(kind):
    torch.manual_seed(0)
    values = [torch.randn(4, 5), torch.randn(7)]
    gradients = [torch.randn(4, 5), torch.randn(7)]

    def train(device, wrap):
        parameters = [nn.Parameter(v.clone().to(device)) for v in values]
        optimizer = getattr(torch.optim, kind)(parameters, lr=0.1)
        step = wrap(optimizer.step)
        for factor in (1.0, 2.0, 3.0):
            for p, g in zip(parameters, gradients, strict=True):
                p.grad = (g * factor).to(device)
            step()
        return [p.detach().cpu() for p in parameters]

    want = train("cpu", lambda step: step)
    torch.testing.assert_close(train("npu", torch.compile), want)


def test_autocast_chooses_types_as_eager_code_does():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 4)).npu()
    x = torch.randn(3, 8).npu()

    def function(x):
        with torch.autocast("npu", dtype=torch.bfloat16):
            y = model(x)
            return y, y.softmax(-1), y.exp()

    want, got = function(x), torch.compile(function)(x)

    assert [y.dtype for y in got] == [y.dtype for y in want]
    torch.testing.assert_close(got, want, rtol=0.02, atol=0.02)


def test_dropout_repeats_with_its_seed_and_masks_gradients_as_results():
    function = torch.compile(lambda x: F.dropout(x, 0.25) * 3)

    def draw(seed=None):
        if seed is not None:
            torch.manual_seed(seed)
        x = torch.ones(4000).npu().requires_grad_()
        y = function(x)
        y.sum().backward()
        assert torch.equal(y, x.grad)
        return y.detach().cpu()

    first, second, again = draw(5), draw(), draw(5)

    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert set(first.tolist()) == {0.0, 4.0}
    assert 0.7 < (first > 0).float().mean() < 0.8


def test_a_replay_draws_what_the_calls_would_have_drawn():
    function = torch.compile(lambda x: x + torch.rand_like(x))
    x = torch.zeros(50).npu()
    function(x)
    torch.manual_seed(3)
    want = [function(x).cpu() for _ in range(4)]
    graph, y = captured(lambda: function(x))

    torch.manual_seed(3)
    for value in want:
        graph.replay()
        assert torch.equal(y.cpu(), value)


@pytest.mark.nightly
def test_recomputed_activations_and_modules_with_state():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(8)
            self.layer = nn.Linear(8, 8)

        def forward(self, x):
            y = self.norm(x)
            again = lambda y: self.layer(y).relu()  # noqa: E731
            return x + checkpoint(again, y, use_reentrant=False)

    torch.manual_seed(0)
    check_module(Block(), torch.randn(6, 8).requires_grad_())


@torch.library.custom_op("npu_inductor_tests::scaled", mutates_args=())
def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
    return x * by


@scaled.register_fake
def _(x, by):
    return torch.empty_like(x)


def test_operators_of_torch_library_are_called_between_kernels():
    check_as_on_cpu(lambda x: scaled(x + 1, 3.0).relu() * 2, torch.randn(5))


# In a process of its own: AOTInductor keeps the constants of what it refused.
REFUSED = """
import copy, torch
layer, x = torch.nn.Linear(4, 3), torch.randn(2, 4)
npu = copy.deepcopy(layer).npu()
program = torch.export.export(npu, (x.npu(),))
for asked in (
    lambda: torch._inductor.aoti_compile_and_package(program, package_path="a.pt2"),
    lambda: torch.compile(npu, options={"cpp_wrapper": True})(x.npu()),
):
    try:
        asked()
    except Exception as error:
        print(str(error).splitlines()[0])
for way in (program.module(), torch.compile(npu)):
    torch.testing.assert_close(way(x.npu()).cpu(), layer(x))
"""


def test_cpp_that_calls_the_device_is_refused_and_what_there_is_instead_works(python):
    said = python(REFUSED).stdout.splitlines()

    assert len(said) == 2
    for line in said:
        assert line.startswith("NotImplementedError: cpp_wrapper=True and AOTInductor")
        assert "program.module()" in line


KINDS = [
    lambda: (nn.Conv2d(64, 128, 3, padding=1), (2, 64, 8, 8)),
    lambda: (nn.Conv2d(3, 8, 3, groups=1), (2, 3, 9, 9)),
    lambda: (nn.ConvTranspose2d(72, 80, 2, stride=2), (1, 72, 5, 5)),
    lambda: (nn.Conv1d(70, 66, 3), (2, 70, 12)),
    lambda: (nn.Conv3d(4, 6, 2), (1, 4, 5, 5, 5)),
]


@pytest.mark.parametrize("kind", KINDS[:1] + [
    pytest.param(kind, marks=pytest.mark.nightly) for kind in KINDS[1:]
])  # fmt: skip
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_a_result_lies_where_inductor_takes_it_to_lie(kind, channels_last, training):
    torch.manual_seed(0)
    layer, shape = kind()
    cpu, x = nn.Sequential(layer, nn.ReLU()), torch.randn(shape)
    if channels_last and x.dim() == 4:
        cpu, x = (one.to(memory_format=torch.channels_last) for one in (cpu, x))

    with torch.set_grad_enabled(training):
        check_module(cpu, x.requires_grad_(training), rtol=1e-4, atol=1e-4)
