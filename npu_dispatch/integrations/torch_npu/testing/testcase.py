"""The test case that torch_npu's tests derive from."""

from __future__ import annotations

import unittest
from typing import Any

import numpy as np
import torch

__all__ = ["TestCase", "run_tests"]

# The relative error that each type may have.
_ERROR = {np.dtype("float16"): 1e-3}
_OTHER_ERROR = 1e-4


def _array(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    return np.asarray(value)


class TestCase(unittest.TestCase):
    """unittest.TestCase with comparisons of arrays and tensors."""

    def assertRtolEqual(  # noqa: N802
        self, x: Any, y: Any, prec: float | None = None, prec16: float = 1e-3
    ) -> None:
        """Fail unless shapes and types are equal, and values up to a relative error.

        prec: the error that is allowed, 1e-4 by default; prec16: that for float16.
        """
        left, right = _array(x), _array(y)
        self.assertEqual(left.shape, right.shape, "shape error")
        self.assertEqual(left.dtype, right.dtype, "dtype error")
        error = prec16 if left.dtype in _ERROR else prec or _OTHER_ERROR
        np.testing.assert_allclose(left, right, rtol=error, atol=error)


def run_tests() -> None:
    """Run the tests of the calling program."""
    unittest.main()
