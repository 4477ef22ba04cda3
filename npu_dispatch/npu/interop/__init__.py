"""Streams and events that another library shares, and the runtime's interface."""
