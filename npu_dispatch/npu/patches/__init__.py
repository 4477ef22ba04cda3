"""What register() changes in torch, where torch does not ask the device itself."""

from npu_dispatch.npu.patches import (
    global_state as global_state,
    sync_batch_norm as sync_batch_norm,
    tensors as tensors,
    training as training,
)
from npu_dispatch.npu.patches.changes import apply as apply, missing as missing
