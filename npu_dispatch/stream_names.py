"""How a stream is called, wherever one is shown."""

from __future__ import annotations


def stream_name(device: int, stream: int) -> str:
    """Return the name in JSON and in addresses: "0:3"."""
    return f"{device}:{stream}"


def stream_title(device: int, stream: int) -> str:
    """Return the name in texts for people: "npu:0 stream 3"."""
    return f"npu:{device} stream {stream}"
