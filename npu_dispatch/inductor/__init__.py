"""torch.compile for `npu`: what Inductor asks of a device.

The first compile imports this, through torch.npu, and nothing does before.
Inductor's C++ code generation for `cpu` writes the loops; scheduling, wrapper and
runtime make them tasks of a stream. All of it is tied to the torch version in
npu_dispatch.config.
"""

from __future__ import annotations

import functools
import os
from typing import Any


@functools.cache
def register() -> Any:
    """Tell Inductor and Dynamo about the device; return its scheduling class."""
    from torch._inductor.codegen import common
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    from npu_dispatch import _C
    from npu_dispatch.inductor import device, fake_layouts, replays
    from npu_dispatch.inductor.host_scalars import MoveHostScalars
    from npu_dispatch.inductor.scheduling import NpuScheduling
    from npu_dispatch.inductor.wrapper import NoCppWrapper, NpuWrapper

    # A user never looks for a line in the programs that Inductor writes.
    _C.add_origin(f"{cache_dir()}{os.sep}", False)
    device.register()
    fake_layouts.lay_out_as_cpu()
    replays.register()
    common.register_backend_for_device(
        "npu",
        NpuScheduling,
        NpuWrapper,
        NoCppWrapper,
        device_custom_pass=MoveHostScalars(),
    )
    return NpuScheduling
