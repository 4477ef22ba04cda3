"""The command `npu-dispatch`."""

from npu_dispatch.cli.group import main

__all__ = ["main"]
