"""What tests of graphs share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch


@pytest.fixture
def captured() -> Callable[..., Any]:
    """captured(function): a graph of function(), and what it returned."""

    def capture(function: Callable[[], Any], **options: Any) -> Any:
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph, **options):
            result = function()
        return graph, result

    return capture
