"""The table of torch.cuda's and torch_npu's names, for torch_npu.md."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

# A process of its own, because the redirection cannot be undone.
_ASK = """
import __future__, json, sys, types, warnings
warnings.simplefilter("ignore")
import torch, npu_dispatch
npu_dispatch.install_torch_npu_alias()
import torch_npu
npu_dispatch.redirect_cuda()
from npu_dispatch.integrations.torch_npu.contrib._cuda_names import REFUSED
found = {}
for full, module in sorted(sys.modules.items()):
    if full.partition("torch.cuda")[0] or any(x[0] == "_" for x in full.split(".")):
        continue
    names = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == full
    ]
    names = [n for n in names if n[0] != "_"]
    names = [n for n in names if not isinstance(getattr(module, n), types.ModuleType)]
    inside = [n.removeprefix(f"{full}.") for n in REFUSED if n.startswith(f"{full}.")]
    refused = {n for n in inside if n.partition(".")[0] in names}
    found[full] = sorted(set(names) - refused), sorted(refused)
names = [n for n in dir(torch_npu) if n[0] != "_"]
no_name = types.ModuleType, __future__._Feature
names = [n for n in names if not isinstance(getattr(torch_npu, n), no_name)]
found["torch_npu"] = names, []
print(json.dumps(found))
"""


def names() -> dict[str, tuple[list[str], list[str]]]:
    """Return by module the names that work, and those that raise one sentence."""
    run = subprocess.run(
        [sys.executable, "-c", _ASK], capture_output=True, text=True, check=True
    )
    return {k: (w, r) for k, (w, r) in json.loads(run.stdout).items() if w or r}


def lines() -> Iterator[str]:
    yield from [
        "",
        "## Names",
        "",
        "All of these since version 0.1.0, with torch.cuda's parameters. A name that",
        "raises says in one sentence why, and what there is instead.",
        "",
        "| module | works | raises |",
        "|---|---|---|",
    ]
    for module, columns in names().items():
        cells = (", ".join(f"`{name}`" for name in column) for column in columns)
        yield f"| `{module}` | {' | '.join(cells)} |"
