"""More than one process: the backend `hccl` of torch.distributed.

`init_process_group()` chooses it for npu; docs/distributed.md says how.
"""

from __future__ import annotations

import pickle
from pathlib import Path

from npu_dispatch import _C
from npu_dispatch.distributed._error import DistributedError

__all__ = ["DistributedError", "dump_flight_recorder"]


def dump_flight_recorder() -> bytes:
    """Return this rank's last calls: a pickle in torch's flight recorder format.

    It holds the newest 1024 calls and all that have not ended.
    `torch.distributed.flight_recorder.fr_trace` reads a folder of such pickles, one
    file for each rank. Raises RuntimeError where the process has no statistics
    segment that can be read, or no group. Mirrors
    torch._C._distributed_c10d._dump_nccl_trace.
    """
    path = _C.segment_path()
    if not path:
        raise RuntimeError(
            "the flight recorder is in the statistics segment, and this process "
            "has none in /dev/shm; a line on stderr said why"
        )
    # Here, since `import torch` imports this module and needs no reader.
    from npu_dispatch.observe.judge.flight_recorder import dump_of
    from npu_dispatch.observe.segment import StatsReader

    with StatsReader(Path(path)) as reader:
        dump = dump_of(reader)
    if dump is None:
        raise RuntimeError(
            "no group with backend hccl: call init_process_group() first"
        )
    return pickle.dumps(dump)
