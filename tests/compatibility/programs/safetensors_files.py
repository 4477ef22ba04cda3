"""save_file(), load_file(device=), a slice of a file."""

import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

LIBRARY = "safetensors"


def run(device):
    path = Path(tempfile.mkdtemp()) / "weights.safetensors"
    made = {"w": torch.rand(8, 4).to(device), "h": torch.rand(3).half().to(device)}
    save_file(made, path)
    loaded = load_file(path, device=device)
    assert all(t.device.type == device for t in loaded.values())
    with safe_open(path, framework="pt", device=device) as file:
        part = file.get_slice("w")[2:5]
    assert part.device.type == device
    return [loaded["w"].sum().item(), loaded["h"].sum().item(), part.sum().item()]
