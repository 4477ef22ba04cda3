"""A job of two ranks, as it is planned and as it is: for bench/plan.py.

Both ranks have an emulated device, whose times are stated, so that what is compared is
the order of work and messages, and the messages' times.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from npu_dispatch.plan import topology
from npu_dispatch.plan.record import record
from npu_dispatch.plan.spec import load
from npu_dispatch.plan.study import Network

_HERE = Path(__file__).parent
_TRAINING = str(_HERE / "_plan_ranks.py")
_LINK = str(_HERE / "_plan_link.py")
# Whose all_reduce is measured, in bytes: see _plan_link.py.
_SMALL, _LARGE = 4096, 1 << 22
_RANKS = 2
_SPEC = """
name = "stated"
source = "bench/plan.py"
date = "2026-11"
[memory]
gib = 4
gb_per_s = 100
[tflops]
fp64 = 0.05
fp32 = 0.5
fp16 = 0.5
int8 = 0.5
[link]
gb_per_s = 10
[latency_us]
launch = 5
kernel = 5
complete = 5
"""
_TOPOLOGY = """
name = "these processes"
source = "bench/plan.py"
date = "2026-11"
per_host = 2
[inside]
alpha_us = {alpha}
gb_per_s = {rate}
"""


def _job(script: str, spec: Path) -> list[float]:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", str(_RANKS), script),
        ],
        env={
            **os.environ,
            "NPU_DRIVER": "emulated",
            "NPU_EMULATED_SPEC": str(spec),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return [float(word) for word in done.stdout.split()]


def real_and_planned_us() -> tuple[float, float]:
    """Return the time of a step of the job, and what is planned with its link."""
    with tempfile.TemporaryDirectory() as name:
        spec, links = Path(name) / "spec.toml", Path(name) / "links.toml"
        spec.write_text(_SPEC)
        small, large = _job(_LINK, spec)
        [real] = _job(_TRAINING, spec)
        # Of two ranks it takes two messages of half the bytes.
        us_per_byte = (large - small) / (_LARGE - _SMALL)
        alpha = max(small - _SMALL * us_per_byte, 0.0) / 2
        links.write_text(_TOPOLOGY.format(alpha=alpha, rate=1e-3 / us_per_byte))
        network = Network(topology.load(str(links)), _RANKS)
        [found] = record([_TRAINING], [load(str(spec))], network=network)
        return real, found.report.step_us
