"""What a failed collective raises."""

from __future__ import annotations

import re

from torch.distributed import DistBackendError

from npu_dispatch.npu.runtime.device_error import DeviceError

_WHERE = re.compile(
    r"group '(?P<group>.*?)', rank (?P<rank>\d+) of (?P<size>\d+), "
    r"\w+ #(?P<seq>\d+): "
)


class DistributedError(DeviceError, DistBackendError):
    """A collective failed. Mirrors torch.distributed.DistBackendError.

    It is raised by the next call or wait of a stream that needs the result. `op` is
    a name such as "hccl:all_reduce", and `launch_stack` has the lines that called it.
    """

    @property
    def group(self) -> str:
        """Name of the process group."""
        return self._field("group")

    @property
    def rank(self) -> int:
        """This process's rank in the group; -1 where it is not known."""
        return int(self._field("rank") or -1)

    @property
    def seq(self) -> int:
        """Number of the call in its group, from 0; -1 where it is not known."""
        return int(self._field("seq") or -1)

    @property
    def missing_ranks(self) -> list[int]:
        """Ranks of the group that had not called it when it timed out."""
        found = re.search(r"not launched by: rank ([\d, ]+)", self.text)
        return [int(rank) for rank in found[1].split(",")] if found else []

    @property
    def lost_rank(self) -> int:
        """The rank of the job that was lost, or that failed first; -1: neither."""
        found = re.search(r"lost rank (\d+)", self.text) or re.search(
            r"rank (\d+) failed in", self.text
        )
        return int(found[1]) if found else -1

    def _field(self, name: str) -> str:
        found = _WHERE.search(self.text)
        return found[name] if found else ""
