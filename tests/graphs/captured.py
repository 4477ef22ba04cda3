"""Captures what a function does."""

import torch


def captured(function, **options):
    """Return a graph of function(), and what it returned."""
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, **options):
        result = function()
    return graph, result
