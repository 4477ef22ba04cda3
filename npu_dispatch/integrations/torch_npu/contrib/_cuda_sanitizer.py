"""torch.cuda._sanitizer where the npu is meant: the npu's sanitizer, by its names."""

from __future__ import annotations

from typing import Any

from npu_dispatch import import_alias
from npu_dispatch.npu import _sanitizer


class NPUSanitizer:
    """torch.cuda._sanitizer.CUDASanitizer, which switches the npu's sanitizer."""

    @property
    def enabled(self) -> bool:
        """Whether the npu's sanitizer is on."""
        return _sanitizer.is_enabled()

    def enable(self) -> None:
        """Switch it on; where it is on, leave its mode as it is."""
        if not self.enabled:
            _sanitizer.enable_npu_sanitizer()

    def disable(self) -> None:
        """Switch it off."""
        _sanitizer.disable_npu_sanitizer()


def _replace() -> None:
    from torch.cuda import _sanitizer as theirs

    module: Any = theirs
    # TORCH_CUDA_SANITIZER has switched it on in the middle of `import torch`.
    was_on = module.cuda_sanitizer.enabled
    if was_on:
        module.cuda_sanitizer.disable()
    module.CUDASanitizer = NPUSanitizer
    module.CUDASanitizerErrors = _sanitizer.NPUSanitizerErrors
    module.cuda_sanitizer = NPUSanitizer()
    if was_on:
        module.cuda_sanitizer.enable()


def fill_in() -> None:
    """Replace torch's sanitizer when it is imported, or now."""
    import_alias.after_import("torch.cuda._sanitizer", _replace)
