"""Runs another program on two ranks; the first of them says its figures.

LAUNCHER two_ranks.py PROGRAM DEVICE FILE OPTIONS
"""

import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def figures_of(program, device, launcher=TORCHRUN, **options):
    """launcher: how python starts both ranks; () where the program does it itself."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures"
        told = (program, device, str(file), json.dumps(options))
        # Others than torchrun count the devices before they start a rank.
        env = {**os.environ, "NPU_DISPATCH_DEVICES": "2"}
        subprocess.run(
            [sys.executable, *launcher, __file__, *told], check=True, env=env
        )
        return json.loads(file.read_text())


def main():
    program, device, file, options = sys.argv[1:]
    figures = importlib.import_module(program).run(device, **json.loads(options))
    distributed = importlib.import_module("torch.distributed")
    backend = distributed.get_backend()
    assert backend == {"cpu": "gloo", "npu": "hccl"}[device], backend
    assert distributed.get_world_size() == 2
    if distributed.get_rank() == 0:
        Path(file).write_text(json.dumps([float(figure) for figure in figures]))


if __name__ == "__main__":
    main()
