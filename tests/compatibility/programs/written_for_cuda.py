"""Runs a program that names "cuda" in a process of its own.

On npu `npu-dispatch run` runs it, with --cuda or another option. On cpu it finds no
CUDA.

    LAUNCHER written_for_cuda.py PROGRAM FILE
"""

import importlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

UNCHANGED = ("-m", "npu_dispatch", "run")


def figures_of(program, device, option):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures"
        launcher = (*UNCHANGED, option) if device == "npu" else ()
        command = (sys.executable, *launcher, __file__, program, str(file))
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        told = json.loads(file.read_text())
    assert told["device"] == device
    return told["figures"]


def main():
    import torch

    program, file = sys.argv[1:]
    module = importlib.import_module(program)
    torch.manual_seed(0)
    figures, tensor = module.run("cuda" if torch.cuda.is_available() else "cpu")
    told = {"figures": figures, "device": tensor.device.type}
    Path(file).write_text(json.dumps(told))


if __name__ == "__main__":
    main()
