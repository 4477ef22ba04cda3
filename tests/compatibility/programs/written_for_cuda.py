"""Runs a script that names "cuda" in a process of its own; it leaves its figures.

On npu `npu-dispatch run` runs it, with --cuda or another option. On cpu it finds no
CUDA.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

UNCHANGED = ("-m", "npu_dispatch", "run")


def figures_of(script, device, option="--cuda"):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures"
        launcher = (*UNCHANGED, option) if device == "npu" else ()
        command = (sys.executable, *launcher, script, str(file))
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        told = json.loads(file.read_text())
    assert told["device"] == device
    return told["figures"]


def runner(script, option="--cuda"):
    return lambda device: figures_of(script, device, option)


def leave(figures, tensor):
    told = {"figures": figures, "device": tensor.device.type}
    Path(sys.argv[1]).write_text(json.dumps(told))
