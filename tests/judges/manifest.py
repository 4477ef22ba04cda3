"""What this device is to TorchCTS: everything that the suite can ask of a device."""

import torch
from torchcts.core.manifest_schema import CAPABILITY_ORDER
from torchcts.core.quantized_decoders import KNOWN_CONTAINER_FORMATS

_DTYPES = """float16 float32 float64 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32
uint64 bool complex32 complex64 complex128 float8_e4m3fn float8_e5m2 float8_e4m3fnuz
float8_e5m2fnuz"""
# A decoder of one's own formats, which this device has not.
_NOT_OURS = {"custom_quantized_decode"}

manifest = {
    "manifest_version": 1,
    "device_name": "auto",
    "backend_import": None,
    "supported_dtypes": {getattr(torch, name): True for name in _DTYPES.split()},
    "device_count": 2,
    "semantic_level": 8,
    "max_samples": 10,
    "max_samples_ieee754": 3,
    "hardware": {
        "memory_model": "discrete",
        "device_memory_gb": "auto",
        "system_memory_gb": "auto",
        "oom_recoverable": True,
    },
    "capabilities": {name: name not in _NOT_OURS for name in CAPABILITY_ORDER},
    "supported_container_formats": dict.fromkeys(KNOWN_CONTAINER_FORMATS, True),
}
