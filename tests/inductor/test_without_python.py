"""Calls and backward of compiled functions in C++ do what torch's do in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._inductor.output_code import CompiledFxGraph

from npu_dispatch.inductor import functions

Function = Callable[..., Any]

pytestmark = pytest.mark.skipif(
    not torch.__version__.startswith(functions.TRIED),
    reason=f"with torch {torch.__version__} these functions stay torch's",
)


@pytest.fixture
def graphs(monkeypatch):
    """What the graphs that a test compiles are called as, in order."""
    found: list[Any] = []
    post_compile = CompiledFxGraph.post_compile

    def noted(self: CompiledFxGraph, *args: Any) -> None:
        post_compile(self, *args)
        found.append(self.current_callable)

    monkeypatch.setattr(CompiledFxGraph, "post_compile", noted)
    torch.compiler.reset()
    return found


@pytest.fixture(params=["C++", "torch"])
def either(request, monkeypatch):
    """A test that has to pass with both kinds of compiled functions."""
    if request.param == "torch":
        monkeypatch.setattr(functions, "_is_plain", lambda *_: False)
    torch.compiler.reset()


def weights(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(shape, generator=generator).npu().requires_grad_()


def warm(function: Function, *args: Any) -> Function:
    """Return the function compiled, called and differentiated once."""
    compiled = torch.compile(function)
    for _ in range(2):
        results = compiled(*args)
        first = results[0] if isinstance(results, tuple) else results
        first.sum().backward()
    for t in args:
        t.grad = None
    return compiled


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)).npu()


def test_a_training_steps_graphs_are_programs(graphs):
    model, x = mlp(), torch.rand(8, 16).npu()
    compiled = torch.compile(lambda: model(x).square().mean())
    compiled().backward()
    assert [type(g).__name__ for g in graphs] == ["GraphProgram", "GraphProgram"]
    assert type(compiled().grad_fn).__name__ == "CppFunction"
    assert compiled().grad_fn.name() == "CompiledFunctionBackward"


def test_a_program_returns_what_the_written_one_does(graphs):
    x = torch.rand(8, 8).npu()
    with torch.no_grad():
        torch.compile(lambda x: (x.exp() @ x.t()).softmax(-1))(x)
    (program,) = graphs
    ours, theirs = [x], [x]
    results = program(ours), program.written(theirs)
    assert ours == theirs == []
    assert torch.equal(results[0][0], results[1][0])


def test_a_program_leaves_a_wrong_input_to_the_written_one(graphs):
    with torch.no_grad():
        torch.compile(lambda x: x * 2 + 1)(torch.rand(8, 4).npu())
    with pytest.raises(AssertionError, match="stride"):
        graphs[0]([torch.rand(4, 8).npu().t()])


def test_shapes_that_change_are_no_program(graphs):
    torch.compile(lambda x: x * 2, dynamic=True)(torch.rand(8).npu())
    assert [type(g).__name__ for g in graphs] != ["GraphProgram"]


def test_gradients_are_bit_for_bit_torchs(monkeypatch):
    found = []
    for plain in (True, False):
        torch.compiler.reset()
        if not plain:
            monkeypatch.setattr(functions, "_is_plain", lambda *_: False)
        model, x = mlp(), torch.ones(8, 16).npu()
        compiled = torch.compile(lambda model=model, x=x: model(x).square().mean())
        for _ in range(3):
            model.zero_grad()
            loss = compiled()
            loss.backward()
        found.append([loss, *(p.grad for p in model.parameters())])
    assert all(map(torch.equal, *found))


@pytest.mark.usefixtures("either")
class TestAsTorchs:
    def test_a_second_backward_is_refused(self):
        w = weights(8)
        loss = warm(lambda w: w.sin().sum(), w)(w)
        loss.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second"):
            loss.backward()

    def test_a_graph_whose_buffers_are_given_away_is_not_retained(self):
        w = weights(8, 8)
        loss = warm(lambda w: (w @ w).sin().sum(), w)(w)
        with pytest.raises(RuntimeError, match="donated buffers"):
            loss.backward(retain_graph=True)

    def test_without_donated_buffers_a_graph_is_retained(self):
        w = weights(8, 8)
        with torch._functorch.config.patch(donated_buffer=False):
            loss = warm(lambda w: (w @ w).cos().sum(), w)(w)
            loss.backward(retain_graph=True)
            once = w.grad.clone()
            loss.backward()
        assert torch.equal(w.grad, 2 * once)

    def test_what_was_saved_is_free_for_backward_when_it_was_read(self):
        ws = [weights(64, 64, seed=i) for i in range(6)]
        x = weights(512, 64).detach()

        def layers(*ws):
            y = x
            for w in ws:
                y = (y @ w).sin()
            return y.sum()

        loss = warm(layers, *ws)(*ws)
        torch.npu.synchronize()
        torch.npu.reset_peak_memory_stats()
        before = torch.npu.memory_allocated()
        loss.backward()
        one = x.numel() * x.itemsize
        # Forward saved twelve such tensors, and backward needs two of its own.
        assert torch.npu.max_memory_allocated() - before < 2 * one

    def test_gradients_of_gradients_are_refused(self):
        w = weights(8)
        with torch._functorch.config.patch(donated_buffer=False):
            loss = warm(lambda w: w.sin().sum(), w)(w)
            (gradient,) = torch.autograd.grad(loss, w, create_graph=True)
        assert gradient.requires_grad
        with pytest.raises(RuntimeError, match="double backward"):
            gradient.sum().backward()

    def test_a_change_in_place_of_what_was_saved_is_noticed(self):
        w, x = weights(8), weights(8, seed=1)
        loss = warm(lambda w, x: (w * x).sum(), w, x)(w, x)
        with torch.no_grad():
            x.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()

    def test_hooks_see_what_is_saved(self):
        w = weights(8)
        compiled = warm(lambda w: w.sin().sum(), w)
        packed: list[Tensor] = []

        def pack(t: Tensor) -> Tensor:
            packed.append(t)
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            loss = compiled(w)
        loss.backward()
        assert packed
        torch.testing.assert_close(w.grad, w.detach().cos())

    def test_a_gradient_may_have_other_strides(self):
        w = weights(4, 4)
        result = warm(lambda w: w.sin() * 2, w)(w)
        result.backward(torch.arange(16.0).view(4, 4).npu().t())
        wanted = 2 * w.detach().cos() * torch.arange(16.0).view(4, 4).npu().t()
        torch.testing.assert_close(w.grad, wanted)

    def test_a_result_may_have_no_gradient(self):
        w = weights(8)
        compiled = warm(lambda w: (w.sin(), w.cos(), w.argmax()), w)
        _, cosine, index = compiled(w)
        assert not index.requires_grad
        cosine.sum().backward()
        torch.testing.assert_close(w.grad, -w.detach().sin())

    def test_hooks_of_the_node_and_of_parameters_run(self):
        w, seen = weights(8), []
        compiled = warm(lambda w: w.sin().sum(), w)
        w.register_post_accumulate_grad_hook(lambda _: seen.append(None))
        loss = compiled(w)
        loss.grad_fn.register_hook(lambda *_: seen.append(None))
        loss.backward()
        assert len(seen) == 2

    def test_without_gradients_there_is_no_node(self):
        w = weights(8)
        compiled = warm(lambda w: w.sin().sum(), w)
        with torch.no_grad():
            assert compiled(w).grad_fn is None
        assert compiled(w).grad_fn is not None

    def test_inference_is_that_of_eager_code(self):
        model, x = mlp(), torch.rand(8, 16).npu()
        compiled = torch.compile(model)
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                for _ in range(3):
                    result = compiled(x)
                torch.testing.assert_close(result, model(x))
                assert result.is_inference() == (mode is torch.inference_mode)
                assert not result.requires_grad

    def test_determinism_is_asked_for_at_each_backward(self):
        w = weights(8)
        loss = warm(lambda w: w.sin().sum(), w)(w)
        torch.use_deterministic_algorithms(True)
        try:
            with pytest.raises(RuntimeError, match="use_deterministic_algorithms"):
                loss.backward()
        finally:
            torch.use_deterministic_algorithms(False)

    def test_a_profile_shows_the_graph(self):
        w = weights(8)
        compiled = warm(lambda w: w.sin().sum(), w)
        with torch.profiler.profile() as profile:
            compiled(w)
        names = [event.key for event in profile.key_averages()]
        assert any(name.startswith("CompiledFunction") for name in names)
