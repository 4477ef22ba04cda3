"""Helpers of torch_npu's own tests, so that such tests run here."""
