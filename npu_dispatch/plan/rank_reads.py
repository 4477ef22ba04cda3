"""The lines at which a program asks for its rank, since only rank 0 of a job runs."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.distributed import distributed_c10d

from npu_dispatch import config
from npu_dispatch.npu.runtime.device_error import frame_origins

__all__ = ["RankReads"]

_MOST_NAMED = 8


class RankReads:
    """Notes where the program itself calls get_rank() or reads the variable RANK.

    What libraries ask for is theirs: it is not noted.
    """

    def __init__(self) -> None:
        self._lines: dict[str, None] = {}  # in the order in which they came
        self._libraries = tuple(folder for folder, _ in frame_origins())
        config.watch_variable("RANK", lambda: self._note(sys._getframe(1)))
        really = distributed_c10d.get_rank

        def get_rank(group: Any = None) -> int:
            self._note(sys._getframe(1))
            return really(group)

        public: Any = torch.distributed
        public.get_rank = get_rank

    def _note(self, frame: Any) -> None:
        # A variable is read through several functions of the standard library.
        own = ("<frozen", config.__file__)
        while frame and frame.f_code.co_filename.startswith((*own, __file__)):
            frame = frame.f_back
        file = frame.f_code.co_filename
        if not file.startswith(self._libraries):
            self._lines[f"{file}:{frame.f_lineno}"] = None

    def note(self) -> str:
        """Return what is to be known of the ranks that did not run."""
        text = "Only rank 0 was run, and the others are taken to do the same."
        if self._lines:
            named = ", ".join([*self._lines][:_MOST_NAMED])
            text += f" The script asks for its rank at {named}: what other ranks do "
            text += "there instead is not in the plan."
        return text
