"""What libc's heap has given out. Tests that ask have the mark `libc_heap`."""

import ctypes

import torch


class _Info(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


_mallinfo = ctypes.CDLL(None).mallinfo2
_mallinfo.restype = _Info


def in_use() -> int:
    """Return how many bytes are given out when the device has nothing to do."""
    torch.npu.synchronize()
    info = _mallinfo()
    return info.uordblks + info.hblkhd
