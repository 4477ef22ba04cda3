"""Waits of the host, dumped tensors and injected faults."""
