"""Runs a function on cpu and on npu and compares all that it returns or raises."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.utils import _pytree as pytree


def to(tree, device):
    """Copy every tensor of a tree to a device, with its requires_grad."""

    def move(t):
        if not isinstance(t, torch.Tensor):
            return t
        return t.detach().to(device, copy=True).requires_grad_(t.requires_grad)

    return pytree.tree_map(move, tree)


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def alike(run, **tolerance):
    """Hold run("npu") to run("cpu")."""
    torch.testing.assert_close(run("npu"), run("cpu"), check_device=False, **tolerance)


def both(function, *arguments, rtol=1e-5, atol=1e-6):
    """function(*arguments) on both devices, from the same seed."""
    results = []
    for device in ("cpu", "npu"):
        torch.manual_seed(0)
        results.append(function(*to(arguments, device)))
    expected, got = map(pytree.tree_leaves, results)
    assert len(expected) == len(got) > 0
    for e, g in zip(expected, got, strict=True):
        if not isinstance(e, torch.Tensor):
            assert e == g
            continue
        assert g.device.type == "npu"
        g = g.detach().cpu()
        if e.is_nested:
            e, g = e.values(), g.values()
        torch.testing.assert_close(g, e.detach(), rtol=rtol, atol=atol, equal_nan=True)


def with_gradients(function):
    """Return a function that also returns the gradients of its tensors."""

    def run(*arguments):
        out = function(*arguments)
        tensors = [t for t in arguments if t.requires_grad]
        loss = sum(o.abs().sum() for o in pytree.tree_leaves(out))
        return out, torch.autograd.grad(loss, tensors)

    return run


def outcome(function, *arguments):
    """Return dtypes, strides and values of the results, or the error in its words."""
    try:
        results = function(*arguments)
    except Exception as error:
        return type(error), str(error).splitlines()[0]
    finally:
        torch.npu.synchronize()  # nothing fails later
    return [
        (t.dtype, t.stride(), t.detach().cpu()) if isinstance(t, torch.Tensor) else t
        for t in pytree.tree_leaves(results)
    ]


def same(function, *arguments, times=1, rtol=0, atol=0):
    """Hold what a function gives or raises to cpu's.

    The first call of a kind takes another way than the next ones.
    """
    expected = outcome(function, *to(arguments, "cpu"))
    for _ in range(times):
        got = outcome(function, *to(arguments, "npu"))
        assert type(got) is type(expected), (got, expected)
        if isinstance(expected, tuple):
            assert got == expected
            continue
        for g, e in zip(got, expected, strict=True):
            if not isinstance(e, tuple):
                assert g == e
                continue
            assert g[:2] == e[:2], (got, expected)
            torch.testing.assert_close(g[2], e[2], rtol=rtol, atol=atol, equal_nan=True)


def failed(kind, match, stream=None):
    """Return the error of this kind with which a task has failed, and clear it."""
    with pytest.raises(kind, match=match) as caught:
        (stream or torch.npu).synchronize()
    torch.npu.clear_error(stream)
    return caught.value


def in_threads(*functions):
    """Run each in a new thread; raise what one of them raises."""
    with ThreadPoolExecutor(len(functions)) as pool:
        for call in [pool.submit(f) for f in functions]:
            call.result()
