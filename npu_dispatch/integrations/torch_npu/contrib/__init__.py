"""torch_npu.contrib: transfer_to_npu, which takes effect when imported."""
