"""Lightning's accelerator. tests/compatibility trains with it."""

from __future__ import annotations

import pytest

from npu_dispatch.integrations.lightning import _indices


@pytest.mark.parametrize(
    ("asked", "indices"),
    [(1, [0]), (2, [0, 1]), (-1, [0, 1]), ("2", [0, 1]), ("1,", [1]), ([1], [1])],
)
def test_devices_are_counted_or_listed_as_for_cuda(asked, indices, monkeypatch):
    monkeypatch.setattr("torch.npu.device_count", lambda: 2)

    assert _indices(asked) == indices


@pytest.mark.parametrize("asked", [0, 3, [2], [0, 0], [], "0,5", "", ","])
def test_devices_that_there_are_not_are_refused(asked, monkeypatch):
    monkeypatch.setattr("torch.npu.device_count", lambda: 2)

    with pytest.raises(ValueError, match="there are 2 npu devices, 0 to 1"):
        _indices(asked)
