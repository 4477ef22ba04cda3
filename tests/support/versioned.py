"""What holds for one version of torch alone."""

import pytest

from npu_dispatch.versions import TORCH_VERSION, TORCH_VERSIONS

__all__ = ["of_the_pages"]

# Pages that list torch's own names and operators are made with one version.
of_the_pages = pytest.mark.skipif(
    TORCH_VERSIONS[0] != TORCH_VERSION,
    reason=f"the pages list the names of torch {TORCH_VERSIONS[0]}, "
    f"this is {TORCH_VERSION}",
)
