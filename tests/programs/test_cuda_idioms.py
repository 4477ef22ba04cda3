"""What scripts for CUDA are made of does on the npu what it does on a GPU.

One process runs all of a file, after the redirect: in the middle of a program, what
an idiom leaves behind is there for the next.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = ("cuda_idioms.txt", "cuda_compiled.txt")


def idioms(file: str) -> dict[str, str]:
    """Return the code of each; "# name" begins it."""
    parts = (HERE / file).read_text().split("\n# ")[1:]
    return {name: code for name, _, code in (part.partition("\n") for part in parts)}


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
    """What failed of a file, and how, in one process."""
    from interpreter import Forked, shared_zygote

    @functools.cache
    def run(file: str) -> dict[str, str]:
        folder = tmp_path_factory.mktemp("idioms")
        (folder / "idioms.json").write_text(json.dumps(idioms(file)))
        done = Forked(folder, shared_zygote())(
            RUNNER, "idioms.json", NPU_DISPATCH_CUDA="1"
        )
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.mark.parametrize(
    ("file", "name"), [(file, name) for file in FILES for name in idioms(file)]
)
def test_an_idiom(told, file, name):
    assert name not in told(file), told(file)[name]
