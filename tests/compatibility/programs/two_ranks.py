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

LAUNCHERS = {
    "torchrun": ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
    "accelerate": ("-m", "accelerate.commands.launch", "--num_processes", "2"),
    # The program starts the second rank itself, by running the script once more.
    "": (),
}


def figures_of(program, device, launcher="torchrun", **options):
    if launcher == "accelerate" and device == "cpu":
        launcher = "torchrun"  # Accelerate starts several processes there by MPI alone.
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures"
        told = (program, device, str(file), json.dumps(options))
        # Others than torchrun count the devices before they start a rank.
        env = {**os.environ, "NPU_DISPATCH_DEVICES": "2"}
        subprocess.run(
            [sys.executable, *LAUNCHERS[launcher], __file__, *told], check=True, env=env
        )
        return json.loads(file.read_text())


def seeded(program, device, **options):
    """Run a program with the random numbers that a new process begins with."""
    module = importlib.import_module(program)
    importlib.import_module("torch").manual_seed(0)
    return module.run(device, **options)


def main():
    program, device, file, options = sys.argv[1:]
    figures = seeded(program, device, **json.loads(options))
    distributed = importlib.import_module("torch.distributed")
    backend = distributed.get_backend()
    assert backend == {"cpu": "gloo", "npu": "hccl"}[device], backend
    assert distributed.get_world_size() == 2
    if distributed.get_rank() == 0:
        Path(file).write_text(json.dumps([float(figure) for figure in figures]))


if __name__ == "__main__":
    main()
