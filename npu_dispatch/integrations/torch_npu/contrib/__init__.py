"""torch_npu.contrib: functions, modules, and transfer_to_npu.

transfer_to_npu takes effect when imported.
"""

from npu_dispatch.integrations.torch_npu._operators import refused_names
from npu_dispatch.integrations.torch_npu.contrib import function, module

__all__ = ["function", "module", *function.__all__, *module.__all__]

for _room in (function, module):
    globals().update({_name: getattr(_room, _name) for _name in _room.__all__})

__getattr__ = refused_names("torch_npu.contrib")
