"""Counters as Prometheus metrics: what npu_dispatch.metrics is made of."""
