"""`python -m npu_dispatch`: the same as the command `npu-dispatch`."""

from npu_dispatch.cli import main

main()
