"""Calls whose results' shapes change with two numbers: arguments and function."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def rand(*sizes, dtype=torch.float32):
    return torch.rand(*sizes).to(dtype)


def image(n, c):
    """Return images whose layout follows from their size."""
    t = rand(n, c, 5 + n, 6)
    return t.contiguous(memory_format=torch.channels_last) if n % 2 else t


CALLS = {
    "add": (lambda n, c: (rand(n, c), rand(c)), torch.add),
    "add_transposed": (lambda n, c: (rand(n, c).t(), rand(c, n)), torch.add),
    "mul_": (lambda n, c: (rand(n, c), rand(n, 1)), lambda a, b: a.mul_(b)),
    "mm": (lambda n, c: (rand(n, c), rand(c, 3)), torch.mm),
    "addmm": (lambda n, c: (rand(3), rand(n, c), rand(c, 3)), torch.addmm),
    "softmax": (lambda n, c: (rand(n, c, 2),), lambda a: torch.softmax(a, 1)),
    "sum": (lambda n, c: (rand(n, c, 2),), lambda a: a.sum((0, 2))),
    "cat": (lambda n, c: (rand(n, c), rand(n, 2)), lambda *a: torch.cat(a, 1)),
    "topk": (lambda n, c: (rand(n, c),), lambda a: torch.topk(a, 2)),
    "gelu": (lambda n, c: (rand(n, c),), F.gelu),
    "where": (
        lambda n, c: (rand(n, c) > 0.5, rand(n, c), rand(c)),
        torch.where,
    ),
    "clone": (lambda n, c: (rand(n, c).t(),), torch.clone),
    "copy": (
        lambda n, c: (rand(n, c), rand(c, n).t()),
        lambda a, b: a.copy_(b),
    ),
    "layer_norm": (
        lambda n, c: (rand(n, 2, c), rand(c), rand(c)),
        lambda a, w, b: F.layer_norm(a, w.shape, w, b),
    ),
    "group_norm": (
        lambda n, c: (rand(n, 4, c),),
        lambda a: F.group_norm(a, 2),
    ),
    "group_norm_scaled": (
        lambda n, c: (image(n, 4), rand(4), rand(4)),
        lambda a, w, b: F.group_norm(a, 2, w, b),
    ),
    "rms_norm": (
        lambda n, c: (rand(n, 2, c), rand(c)),
        lambda a, w: F.rms_norm(a, w.shape, w),
    ),
    "cross_entropy": (
        lambda n, c: (rand(n, c), torch.arange(n) % c),
        F.cross_entropy,
    ),
    "cross_entropy_of_images": (
        lambda n, c: (rand(n, c, 3, n), torch.arange(n * n * 3).view(n, 3, n) % c),
        lambda a, t: F.cross_entropy(a, t, label_smoothing=0.1),
    ),
    "cross_entropy_each": (
        lambda n, c: (rand(n, c, 3, n), torch.arange(n * n * 3).view(n, 3, n) % c),
        lambda a, t: F.cross_entropy(a, t, reduction="none"),
    ),
    "binary_cross_entropy": (
        lambda n, c: (rand(n, c), rand(n, c)),
        F.binary_cross_entropy,
    ),
    "binary_cross_entropy_each": (
        lambda n, c: (rand(n, c).t(), rand(n, c).t()),
        lambda a, t: F.binary_cross_entropy(a, t, reduction="none"),
    ),
    "binary_cross_entropy_of_logits": (
        lambda n, c: (rand(n, c), rand(n, c)),
        lambda a, t: F.binary_cross_entropy_with_logits(
            a, t, pos_weight=torch.ones_like(a[0])
        ),
    ),
    "logsigmoid": (lambda n, c: (rand(n, c).t(),), F.logsigmoid),
    "grid_sample": (
        lambda n, c: (rand(n, 2, c, 3), rand(n, 4, c, 2)),
        lambda a, g: F.grid_sample(a, g, align_corners=False),
    ),
    "grid_sample_3d": (
        lambda n, c: (rand(n, 2, c, 3, 2), rand(n, 4, c, 2, 3)),
        lambda a, g: F.grid_sample(a, g, align_corners=False),
    ),
    "unfold": (lambda n, c: (rand(n, 2, c + 1, n),), lambda a: F.unfold(a, 2)),
    "fold": (
        lambda n, c: (rand(n, 8, c * n),),
        lambda a: F.fold(a, (a.shape[2] // n_of(a) + 1, n_of(a) + 1), 2),
    ),
    "max_pool1d": (lambda n, c: (rand(n, 2, c),), lambda a: F.max_pool1d(a, 2)),
    "max_pool3d": (
        lambda n, c: (rand(n, 2, c, 3, 4),),
        lambda a: F.max_pool3d(a, 2, ceil_mode=True),
    ),
    "kthvalue": (lambda n, c: (rand(n, c),), lambda a: a.kthvalue(2, 0)),
    "median": (lambda n, c: (rand(n, c),), lambda a: a.median(-1, keepdim=True)),
    "mode": (lambda n, c: (rand(n, c),), lambda a: a.mode(0)),
    "roll": (lambda n, c: (rand(n, c),), lambda a: a.roll(1, 0)),
    "flip": (lambda n, c: (rand(n, c),), lambda a: a.flip(1)),
    "count_nonzero": (
        lambda n, c: (torch.arange(n * c * 2).view(n, c, 2),),
        lambda a: a.count_nonzero((0, -1)),
    ),
    "cdist": (lambda n, c: (rand(n, 3), rand(c, 3)), torch.cdist),
    "bucketize": (
        lambda n, c: (rand(n, c).double().mul(9).long(), torch.arange(c)),
        torch.bucketize,
    ),
    "searchsorted": (
        lambda n, c: (torch.arange(c), torch.arange(n * 2).view(n, 2)),
        torch.searchsorted,
    ),
    "searchsorted_rows": (
        lambda n, c: (torch.arange(n * c).view(n, c), torch.arange(n * 2).view(n, 2)),
        torch.searchsorted,
    ),
    "logit": (lambda n, c: (rand(n, c),), torch.logit),
    "prod": (lambda n, c: (rand(n, c),), torch.prod),
    "prod_of_integers": (
        lambda n, c: (torch.arange(n * c).view(n, c) + 1,),
        lambda a: (a.prod(), a.prod(dtype=torch.float64), (a > 1).prod()),
    ),
    "trace": (lambda n, c: (rand(n, c),), torch.trace),
    "polar": (
        lambda n, c: (rand(n, c), rand(n, c)),
        lambda a, b: torch.view_as_real(torch.polar(a, b)),
    ),
    "fft": (
        lambda n, c: (rand(n, c + 2),),
        lambda a: torch.view_as_real(torch.fft.fft(torch.fft.rfft(a))),
    ),
    "irfft": (
        lambda n, c: (rand(n, c + 2),),
        lambda a: torch.fft.irfft(torch.fft.rfft(a), a.shape[1]),
    ),
    "fft_of_the_first": (
        lambda n, c: (rand(n, c + 2, 3),),
        lambda a: torch.view_as_real(torch.fft.fft(torch.fft.rfft(a, dim=0), dim=1)),
    ),
    "fft_of_images": (
        lambda n, c: (image(n, c),),
        lambda a: torch.view_as_real(torch.fft.fftn(torch.fft.rfft2(a))),
    ),
    "fft_in_another_order": (
        lambda n, c: (image(n, c).transpose(0, 2),),
        lambda a: torch.view_as_real(torch.fft.fftn(torch.fft.rfftn(a, dim=(3, 1)))),
    ),
    "irfft_of_images": (
        lambda n, c: (image(n, c),),
        lambda a: torch.fft.irfft2(torch.fft.rfft2(a), a.shape[2:]),
    ),
    "irfft_of_the_first": (
        lambda n, c: (rand(n, c + 2, 3).mT,),
        lambda a: torch.fft.irfftn(torch.fft.rfft(a, dim=0), a.shape[:2], dim=(1, 0)),
    ),
    "l1_loss": (lambda n, c: (rand(n, c), rand(n, c)), F.l1_loss),
    "mse_loss": (lambda n, c: (rand(n, c).t(), rand(c, n)), F.mse_loss),
    "smooth_l1": (lambda n, c: (rand(n, c), rand(n, c)), F.smooth_l1_loss),
    "huber": (lambda n, c: (rand(n, c), rand(n, c)), F.huber_loss),
    "glu": (lambda n, c: (rand(n, 2 * c),), F.glu),
    "safe_softmax": (
        lambda n, c: (rand(n, c),),
        lambda a: torch._safe_softmax(a, -1),
    ),
    "where_number": (
        lambda n, c: (rand(n, c) > 0.5, rand(n, c)),
        lambda m, a: torch.where(m, a, 2.0),
    ),
    "isclose": (lambda n, c: (rand(n, c), rand(n, c)), torch.isclose),
    "nan_to_num": (lambda n, c: (rand(n, c).t(),), torch.nan_to_num),
    "take": (
        lambda n, c: (rand(n, c), torch.arange(n * c).view(c, n)),
        torch.take,
    ),
    "addr": (lambda n, c: (rand(n, c), rand(n), rand(c)), torch.addr),
    "multinomial": (
        lambda n, c: (torch.eye(n, c) + 1e-30,),
        lambda a: torch.multinomial(a, 1).shape and a * 1,
    ),
    "eye": (lambda n, c: (rand(n),), lambda a: torch.eye(n_of(a), 3, device=a.device)),
    "arange_steps": (
        lambda n, c: (rand(n),),
        lambda a: torch.arange(9, -n_of(a), -2, device=a.device) + a[0],
    ),
    "arange_of_floats": (
        lambda n, c: (rand(n),),
        lambda a: torch.arange(0.5, n_of(a), 0.75, device=a.device),
    ),
    "linspace": (
        lambda n, c: (rand(n),),
        lambda a: torch.linspace(0, 1, n_of(a), device=a.device),
    ),
    "embedding": (
        lambda n, c: (torch.arange(n * 2).reshape(n, 2) % c, rand(c, 3)),
        F.embedding,
    ),
    **{
        f"embedding_bag_{mode}": (
            lambda n, c: (torch.arange(n * 2) % c, rand(c, 3), torch.arange(n) * 2),
            lambda i, w, o, mode=mode: F.embedding_bag(i, w, o, mode=mode),
        )
        for mode in ("sum", "mean", "max")
    },
    "embedding_bag_padded": (
        lambda n, c: (torch.arange(n * 2) % c, rand(c, 3), torch.arange(n) * 2),
        lambda i, w, o: F.embedding_bag(
            i, w, o, include_last_offset=True, padding_idx=0
        ),
    ),
    "attention": (
        lambda n, c: tuple(rand(2, 2, m, 8) for m in (n, c, c)),
        F.scaled_dot_product_attention,
    ),
    "attention_packed": (
        lambda n, c: (rand(2, n, 3 * c),),
        lambda a: F.scaled_dot_product_attention(
            *(t.unsqueeze(1) for t in a.chunk(3, -1))
        ),
    ),
    "attention_masked": (
        lambda n, c: (*(rand(2, 2, m, 8) for m in (n, c, c)), rand(n, c) > -1),
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
    ),
    "conv": (
        lambda n, c: (image(n, 3), rand(4, 3, 3, 3), rand(4)),
        lambda a, w, b: F.conv2d(a, w, b, padding=1),
    ),
    "conv1d": (
        lambda n, c: (rand(n, 4, 9 + c), rand(6, 2, 3)),
        lambda a, w: F.conv1d(a, w, stride=2, groups=2, dilation=2),
    ),
    "conv_transposed": (
        lambda n, c: (image(n, 4), rand(4, 3, 3, 3), rand(6)),
        lambda a, w, b: F.conv_transpose2d(
            a, w, b, stride=2, padding=1, output_padding=1, groups=2
        ),
    ),
    "batch_norm": (
        lambda n, c: (image(n, c),),
        lambda a: F.batch_norm(a, None, None, training=True),
    ),
    "max_pool": (lambda n, c: (image(n, c),), lambda a: F.max_pool2d(a, 2)),
    "index": (
        lambda n, c: (rand(n, c), torch.arange(c) % n),
        lambda a, i: a[i],
    ),
    "nonzero": (lambda n, c: (torch.arange(n * c).view(n, c) % 3,), torch.nonzero),
    "index_mask": (
        lambda n, c: (rand(n, c), torch.arange(c) % 2 == 0),
        lambda a, m: a[:, m],
    ),
    **{
        name: (
            lambda n, c: (rand(n, n) + torch.eye(n) * 4, rand(n, c)),
            lambda a, b, call=call: call(a @ a.mT, b),
        )
        for name, call in {
            "solve": torch.linalg.solve,
            "inv": lambda a, b: torch.linalg.inv(a),
            "det": lambda a, b: torch.linalg.det(a),
            "cholesky": lambda a, b: torch.linalg.cholesky(a),
            "qr": lambda a, b: torch.linalg.qr(b if b.shape[0] > b.shape[1] else b.mT),
            "solve_triangular": lambda a, b: torch.linalg.solve_triangular(
                a, b, upper=True
            ),
        }.items()
    },
    "index_select": (
        lambda n, c: (rand(n, c), torch.arange(c) % n),
        lambda a, i: a.index_select(0, i),
    ),
    "masked_fill_": (
        lambda n, c: (rand(n, c), rand(c) > 0.5),
        lambda a, m: a.masked_fill_(m, 2.0),
    ),
    "select": (lambda n, c: (rand(n, c),), lambda a: a[n_of(a) // 2]),
    "slice": (lambda n, c: (rand(n + 2, c),), lambda a: a[1:-1] * 2),
    "slice_steps": (lambda n, c: (rand(n + 2, c),), lambda a: a[-n_of(a) : 7 : 3]),
    "pad": (lambda n, c: (image(n, c),), lambda a: F.pad(a, (1, 2))),
    "pad_and_cut": (lambda n, c: (image(n, c),), lambda a: F.pad(a, (1, -2, -3, 4))),
    "arange": (lambda n, c: (rand(n),), lambda a: torch.arange(n_of(a)).to(a.device)),
    "adaptive_avg_pool3d": (
        lambda n, c: (rand(n, c, 4, 5, 6),),
        lambda a: F.adaptive_avg_pool3d(a, (2, 3, n_of(a))),
    ),
    "pixel_shuffle": (
        lambda n, c: (image(n, 4 * c),),
        lambda a: F.pixel_shuffle(a, 2),
    ),
    "pixel_unshuffle": (
        lambda n, c: (rand(n, c, 2 * n, 4),),
        lambda a: F.pixel_unshuffle(a, 2),
    ),
    "channel_shuffle": (
        lambda n, c: (image(n, 4),),
        lambda a: F.channel_shuffle(a.detach(), 2),
    ),
    "pad_reflect": (
        lambda n, c: (image(n, c),),
        lambda a: F.pad(a, (1, 2, 3, 0), mode="reflect"),
    ),
    "pad_replicate": (
        lambda n, c: (image(n, c),),
        lambda a: F.pad(a, (1, 2, 3, 0), mode="replicate"),
    ),
    "pad_replicate_3d": (
        lambda n, c: (rand(n, c, 2, 3, n),),
        lambda a: F.pad(a, (1, 2, 3, 0, 1, 1), mode="replicate"),
    ),
    "addbmm": (
        lambda n, c: (rand(3), rand(2, n, c), rand(2, c, 3)),
        torch.addbmm,
    ),
    "frexp": (lambda n, c: (rand(n, c).t(),), lambda a: torch.frexp(a)),
    "histc": (
        lambda n, c: (rand(n, c),),
        lambda a: torch.histc(a.detach(), 3 + n_of(a), 0, 1),
    ),
    "masked_scatter": (
        lambda n, c: (rand(n, c), torch.arange(c) % 2 == 0, rand(n * c)),
        lambda a, m, b: a.masked_scatter(m, b),
    ),
    "pdist": (lambda n, c: (rand(n, c),), torch.pdist),
    "roll_an_image": (lambda n, c: (image(n, c),), lambda a: a.roll(2, 1)),
    "soft_margin_loss": (
        lambda n, c: (rand(n, c), rand(n, c).round() * 2 - 1),
        lambda a, b: F.soft_margin_loss(a, b.detach()),
    ),
    "mvlgamma": (lambda n, c: (rand(n, c) + 3,), lambda a: torch.mvlgamma(a, 2)),
}


def n_of(t):
    return t.shape[0]
