"""What scripts for CUDA are made of does on the npu what it does on a GPU.

One process runs all of it, after the redirect: in the middle of a program, what
an idiom leaves behind is there for the next.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCE = (HERE / "cuda_idioms.txt").read_text()
# "# name" begins each.
IDIOMS = {
    name: code
    for name, _, code in (
        part.partition("\n") for part in SOURCE.split("\n# ") if not part.isspace()
    )
    if not name.startswith("#")
}

RUNNER = """
import json, pathlib, sys, traceback, warnings
import torch
from torch import nn
from torch.nn import functional as F
warnings.simplefilter("ignore")
told = {}
for name, code in json.load(open(sys.argv[1])).items():
    # torch.jit reads the source of what it scripts.
    path = name.replace(" ", "_") + ".py"
    pathlib.Path(path).write_text(code)
    names = {"__name__": "idiom", "torch": torch, "nn": nn, "F": F}
    try:
        exec(compile(code, path, "exec"), names)
    except BaseException as error:
        told[name] = "".join(traceback.format_exception(error)[-6:])
torch.cuda.synchronize()
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What failed, and how, in one process."""
    from interpreter import Spawned

    folder = tmp_path_factory.mktemp("idioms")
    (folder / "idioms.json").write_text(json.dumps(IDIOMS))
    run = Spawned(folder)(RUNNER, "idioms.json", NPU_DISPATCH_CUDA="1")
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", IDIOMS)
def test_an_idiom(told, name):
    assert name not in told, told[name]
