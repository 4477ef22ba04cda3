"""Version counters of tensors that an operator on lists writes."""

from __future__ import annotations

import pytest
import torch

ONES = (torch.ones, (3,)), (torch.ones, (2, 2))
WRITING = {
    "_foreach_add_": lambda t: torch._foreach_add_(t, 1),
    "_foreach_exp_": lambda t: torch._foreach_exp_(t),
    "_foreach_copy_": lambda t: torch._foreach_copy_(t, [x.clone() for x in t]),
    "_foreach_zero_": lambda t: torch._foreach_zero_(t),
    "_foreach_lerp_": lambda t: torch._foreach_lerp_(t, [x.clone() for x in t], 0.5),
    "twice the same": lambda t: torch._foreach_mul_([t[0], t[1], t[0]], 2),
    "out": lambda t: torch.ops.aten._foreach_add.Scalar_out(
        [x.clone() for x in t], 1, out=t
    ),
    "not in place": lambda t: torch._foreach_add(t, 1),
}


@pytest.mark.parametrize("how", WRITING)
def test_versions_are_counted_as_on_cpu(how):
    versions = []
    for device in ("cpu", "npu"):
        tensors = [make(shape, device=device) for make, shape in ONES]
        for _ in range(2):
            WRITING[how](tensors)
        versions.append([t._version for t in tensors])
    assert versions[0] == versions[1]


def test_backward_refuses_what_a_list_operator_has_overwritten():
    x = torch.ones(3, device="npu", requires_grad=True)
    y = x.exp()
    torch._foreach_mul_([y], 2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_inference_tensors_have_no_version():
    with torch.inference_mode():
        t = torch.ones(3, device="npu")
        torch._foreach_add_([t], 1)
    assert t.tolist() == [2, 2, 2]
