"""torch.backends.cuda where the npu is meant; its settings have no effect there."""

from __future__ import annotations

from typing import Any

import torch


class _PlanCaches:
    """The npu's Fourier transforms keep no plans, so each device's cache is empty."""

    size = 0
    max_size = 0

    def clear(self) -> None:
        """Do nothing: there is no plan."""

    def __getitem__(self, device: Any) -> _PlanCaches:
        return self


class _Library:
    """preferred_linalg_library and the like, which only return what was chosen."""

    def __init__(self, function: Any, names: dict[str, Any]) -> None:
        self._function, self._names = function, names
        self._chosen = function()

    def __call__(self, backend: Any = None) -> Any:
        if isinstance(backend, str):
            if backend not in self._names:
                return self._function(backend)  # which says what there is
            self._chosen = self._names[backend]
        elif backend is not None:
            self._chosen = backend
        return self._chosen


def fill_in() -> None:
    """Replace the functions that ask for CUDA's libraries."""
    cuda: Any = torch.backends.cuda
    cuda.is_built = lambda: True
    cuda.cufft_plan_cache = _PlanCaches()
    cuda.preferred_linalg_library = _Library(
        cuda.preferred_linalg_library, cuda._LinalgBackends
    )
    cuda.preferred_blas_library = _Library(
        cuda.preferred_blas_library, cuda._BlasBackends
    )
    for kernel in ("cudnn", "efficient", "flash"):
        setattr(cuda, f"can_use_{kernel}_attention", lambda params, debug=False: False)
    for name in (
        "blas_workspace_size",
        "cublas_workspace_size",
        "cublaslt_workspace_size",
    ):
        setattr(cuda, name, lambda *args: 0)
