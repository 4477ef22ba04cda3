"""torch_npu.contrib: functions, modules, and transfer_to_npu.

transfer_to_npu takes effect when imported.
"""

from npu_dispatch.integrations.torch_npu.contrib import function, module

__all__ = ["function", "module"]
