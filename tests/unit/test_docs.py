"""Every example of Python in the documents runs, without a race."""

from __future__ import annotations

from pathlib import Path

import pytest
from documents import blocks
from interpreter import environment

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Those that show a race say what they find: sanitizer/test_docs.py. The files of a page
# are run by its commands: test_docs_commands.py.
EXAMPLES = {
    f"{page.name}#{number}": block.text
    for page in PAGES
    for number, block in enumerate(
        block
        for block in blocks(page)
        if block.language == "python" and not block.text.startswith("# finds: ")
    )
    if not block.marks.keys() & {"not run", "file"}
}
MODEL = "import torch\nmake_model = lambda: torch.nn.Linear(32, 32)\n"
# What an example takes for granted, before it, and what ends it.
AROUND = {
    "asyncio.md#0": (
        "import asyncio",
        """
net, stream = torch.nn.Linear(4, 2).npu(), torch.npu.Stream()
stream.wait_stream(torch.npu.current_stream())
batch = torch.ones(3, 4)
with torch.no_grad():
    scores = asyncio.run(classify(net, batch, stream))
torch.testing.assert_close(scores, net.cpu()(batch))
""",
    ),
    "compile.md#0": (f"{MODEL}x = torch.ones(2, 32, device='npu')", ""),
    "compile.md#1": (
        f"""{MODEL}
import npu_dispatch
model = make_model().npu()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
x, y = torch.ones(4, 32).npu(), torch.zeros(4, dtype=torch.long).npu()
loader = [(x, y)] * 4
""",
        "",
    ),
    "graphs.md#0": (f"{MODEL}request = torch.ones(1, 32)", ""),
    "graphs.md#1": (
        """
import torch
g, other = torch.npu.NPUGraph(), torch.npu.Stream()
x, y, z = (torch.ones(3, device="npu") for _ in range(3))
torch.npu.synchronize()
""",
        "",
    ),
    "tracing.md#0": (
        f"""{MODEL}
model, x = make_model().npu(), torch.ones(2, 32, device="npu")
stream = torch.npu.current_stream()
""",
        "",
    ),
    "tracing.md#1": (
        """
import torch
train_step = lambda: torch.ones(3, device="npu").mul_(2).sum().item()
""",
        "",
    ),
    # The page is about a real device.
    "plan.md#0": (
        "import torch\n\ndef step():\n    pass\n\ntorch.cuda.synchronize = step",
        "",
    ),
}
ENVIRONMENT = {"torch_npu.md#0": {"NPU_DISPATCH_TORCH_NPU_ALIAS": "1"}}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_without_a_race(name: str, python, tmp_path: Path):
    before, after = AROUND.get(name, ("", ""))
    # A file: operators and kernels ask for their source.
    program = tmp_path / "example.py"
    program.write_text(f"{before}\n{EXAMPLES[name]}\n{after}\n")

    done = python.run(
        str(program),
        env={
            **environment(TORCH_NPU_SANITIZER="raise"),
            **ENVIRONMENT.get(name, {}),
        },
    )

    assert done.returncode == 0, done.stderr
    assert "npu sanitizer" not in done.stderr


def test_what_surrounds_an_example_has_one():
    assert set(AROUND) | set(ENVIRONMENT) <= set(EXAMPLES)
