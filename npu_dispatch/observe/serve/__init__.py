"""The service behind `npu-dispatch serve`. Imports no torch."""
