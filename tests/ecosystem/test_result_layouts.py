"""Results have cpu's values and strides, however arguments and gradients lie."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F


def ctc_batch_first(x):
    lengths = torch.tensor([6, 6])
    targets = torch.tensor([[1, 2, 3], [2, 1, 4]], device=x.device)
    log_probs = x.log_softmax(-1).transpose(0, 1)
    return F.ctc_loss(log_probs, targets, lengths, torch.tensor([3, 3]))


def replicate_pad(x):
    return F.pad(x, (2, 1, -1, 2), mode="replicate")


def layer_norm(x):
    return F.layer_norm(x, x.shape[1:])


DIFFERENTIABLE = {
    "log_softmax of the last": (lambda x: x.log_softmax(-1), (4, 5, 6)),
    "log_softmax of the middle": (lambda x: x.log_softmax(1), (4, 5, 6)),
    "log_softmax of the first": (lambda x: x.log_softmax(0), (4, 5, 6)),
    "log_softmax of images": (lambda x: x.log_softmax(1), (2, 3, 4, 5)),
    "softmax": (lambda x: x.softmax(1), (4, 5, 6)),
    "cross_entropy": (
        lambda x: F.cross_entropy(
            x, torch.ones(2, 5, 6, dtype=torch.long, device=x.device), reduction="none"
        ),
        (2, 4, 5, 6),
    ),
    "ctc_loss": (ctc_batch_first, (2, 6, 5)),
    "replicate pad": (replicate_pad, (2, 3, 5, 6)),
    "layer_norm": (layer_norm, (2, 3, 4)),
    "layer_norm of one": (layer_norm, (1, 2, 3)),
    "abs": (torch.abs, (4, 5, 6)),
    "gelu": (F.gelu, (4, 5, 6)),
    "cumsum": (lambda x: x.cumsum(1), (4, 5, 6)),
    "batch_norm": (
        lambda x: F.batch_norm(x, None, None, training=True),
        (2, 3, 4, 5),
    ),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), (2, 3, 4, 6)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), (2, 3, 4, 6)),
    "upsample": (lambda x: F.interpolate(x, scale_factor=2.0), (2, 3, 4, 5)),
}


def permuted(t):
    """The same values, the dimensions in memory in the reverse order."""
    reverse = tuple(reversed(range(t.dim())))
    return t.permute(reverse).contiguous().permute(reverse)


def rotated(t):
    """The same values, the first dimension innermost."""
    there = (*range(1, t.dim()), 0)
    back = (t.dim() - 1, *range(t.dim() - 1))
    return t.permute(there).contiguous().permute(back)


def channels_last(t):
    """What it means to images; to others something else again."""
    if t.dim() != 4:
        return t.transpose(0, -1).contiguous().transpose(0, -1)
    return t.contiguous(memory_format=torch.channels_last)


def expanded(t):
    return t[:1].expand_as(t)


def sliced(t):
    return torch.stack([t, t], -1)[..., 0]


LAYOUTS = [torch.clone, permuted, rotated, channels_last, expanded, sliced]


def on(device, layout, t):
    """The values of a contiguous host tensor, laid out on the device itself."""
    return layout(t.to(device, copy=True))


def assert_same(got, expected):
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-5)
    assert got.stride() == expected.stride()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients(name, layout):
    function, shape = DIFFERENTIABLE[name]
    torch.manual_seed(0)
    x = torch.randn(shape)
    incoming = torch.randn(function(x).shape)

    def run(device, gradient):
        own = on(device, layout, x).detach().requires_grad_()
        out = function(own)
        grad = on(device, gradient, incoming) if incoming.dim() else incoming.to(device)
        return out.detach(), *torch.autograd.grad(out, own, grad)

    for gradient in LAYOUTS:
        for got, expected in zip(
            run("npu", gradient), run("cpu", gradient), strict=True
        ):
            assert_same(got, expected)


ELEMENTWISE = {
    "copysign": torch.copysign,
    "copysign of a number": lambda a, b: torch.copysign(a, 2.0),
    "floor_divide": torch.floor_divide,
    "div": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "logical_and": torch.logical_and,
    "logical_xor": torch.logical_xor,
    "logical_not": lambda a, b: torch.logical_not(a),
    "heaviside": torch.heaviside,
    "complex": torch.complex,
    "abs": lambda a, b: a.abs(),
    "add": torch.add,
    "sub of two types": lambda a, b: torch.sub(a[:, :1].expand_as(a), b.double()),
    "where": lambda a, b: torch.where(a > 0, a, b),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_element_by_element(name):
    torch.manual_seed(0)
    for shapes in (((10, 1, 5), (10, 5)), ((5, 1, 4), (1, 3, 4))):
        a, b = (torch.randn(s) for s in shapes)
        for first in (permuted, rotated):
            for second in (permuted, rotated, torch.clone):

                def run(device, a=a, b=b, first=first, second=second):
                    return ELEMENTWISE[name](
                        on(device, first, a), on(device, second, b)
                    )

                assert_same(run("npu"), run("cpu"))


def test_an_out_argument_is_resized_to_the_strides_of_a_new_result():
    a = permuted(torch.randn(3, 4, 5))
    for name in ("mul", "add", "maximum", "atan2"):
        strides = []
        for device in ("cpu", "npu"):
            own = on(device, permuted, a)
            out = torch.empty(0, device=device)
            assert getattr(torch, name)(own, own, out=out) is out
            strides.append(out.stride())
            torch.testing.assert_close(out.cpu(), getattr(torch, name)(a, a))
        assert strides[0] == strides[1]


def test_the_dimensions_of_a_transform_decide_its_strides():
    x = torch.randn(4, 5, 6, dtype=torch.complex64)
    for layout in LAYOUTS:
        for dims in ((-1,), (0,), (1,), (0, 1), (0, 2), (1, 2), (0, 1, 2)):
            for function in (torch.fft.fftn, torch.fft.irfftn):
                assert_same(
                    function(on("npu", layout, x), dim=dims),
                    function(on("cpu", layout, x), dim=dims),
                )


def test_a_layout_is_asked_for_anew_where_another_was_tried_before():
    """What a trial of contiguous arguments says holds for no other."""
    for layout in (torch.clone, permuted, rotated, permuted):
        x = torch.randn(3, 4, 5)
        results = []
        for device in ("cpu", "npu"):
            own = on(device, layout, x).detach().requires_grad_()
            out = layer_norm(own)
            grad = on(device, layout, torch.ones(3, 4, 5))
            results.append(torch.autograd.grad(out, own, grad)[0])
        assert_same(results[1], results[0])


def test_an_operator_whose_strides_nobody_foresees_waits_once_not_always():
    """Of a layout that is too large to be tried, one call tells the strides."""
    x = torch.rand(300, 301).npu()
    for _ in range(2):
        x.t().abs()
    torch.npu.set_sync_debug_mode("error")
    try:
        for width in (302, 303):
            own = torch.empty(300, width, device="npu").t()
            assert own.abs().stride() == own.stride()
    finally:
        torch.npu.set_sync_debug_mode("default")


@pytest.mark.parametrize(
    ("function", "make"),
    [
        (lambda x: torch.linalg.eig(x)[1].abs(), lambda n: torch.rand(n, n)),
        (lambda x: torch.fft.rfftn(x, dim=(0, 1)), lambda n: torch.rand(n, n + 1, 4)),
        (lambda x: torch.nonzero_static(x, size=5), lambda n: torch.eye(n)),
    ],
    ids=["eigenvectors", "transform", "places"],
)
def test_what_a_trial_has_told_of_the_strides_holds_for_other_sizes(function, make):
    for n in (3, 4, 6, 5):
        x = make(n)
        assert_same(function(x.npu()), function(x))
