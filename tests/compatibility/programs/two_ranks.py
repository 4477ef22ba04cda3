"""Runs another program under torchrun on two ranks; the first says its figures.

torchrun --nproc-per-node 2 two_ranks.py PROGRAM DEVICE FILE
"""

import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def figures_of(program, device):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures"
        command = (*TORCHRUN, __file__, program, device, str(file))
        subprocess.run([sys.executable, *command], check=True)
        return json.loads(file.read_text())


def main():
    program, device, file = sys.argv[1:]
    figures = importlib.import_module(program).run(device)
    backend = importlib.import_module("torch.distributed").get_backend()
    assert backend == {"cpu": "gloo", "npu": "hccl"}[device], backend
    if os.environ["RANK"] == "0":
        Path(file).write_text(json.dumps([float(figure) for figure in figures]))


if __name__ == "__main__":
    main()
