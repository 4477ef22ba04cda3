"""Streams for tests of captures: the pool goes round, and one of it captures."""

import torch


def side_streams(count: int) -> list[torch.npu.Stream]:
    """Return streams of the pool other than the one that captures use."""
    with torch.npu.graph(torch.npu.NPUGraph()):
        pass  # the first capture chooses its stream
    captures = torch.npu.graph.capture_stream_of(torch.npu.current_device())
    taken = (torch.npu.Stream() for _ in range(count + 1))
    return [stream for stream in taken if stream != captures][:count]
