"""examples/train_ray.py: two workers, 4 training steps."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

LIBRARY = "ray"

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "train_ray.py"


def run(device):
    with tempfile.TemporaryDirectory() as folder:
        losses = Path(folder) / "losses"
        how = ("--device", device, "--steps", "4", "--losses", str(losses))
        subprocess.run([sys.executable, str(EXAMPLE), *how], check=True)
        return [json.loads(line)["loss"] for line in losses.read_text().splitlines()]
