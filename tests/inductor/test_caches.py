"""Compiled graphs are found again only for the same package, ISA and threads."""

from __future__ import annotations

from pathlib import Path

import torch

from npu_dispatch import inductor
from npu_dispatch.inductor import host_scalars


def key() -> object:
    return host_scalars.MoveHostScalars().uuid()


def test_the_key_changes_with_threads_and_instruction_set(monkeypatch):
    before = key()
    assert key() == before

    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        assert key() != before
    finally:
        torch.set_num_threads(threads)
    monkeypatch.setattr(host_scalars, "pick_vec_isa", lambda: "another")
    assert key() != before


def test_the_key_changes_with_each_file_of_the_package(tmp_path: Path, monkeypatch):
    package = Path(inductor.__file__).parent
    names = {p.name for p in package.iterdir() if p.is_file()}
    for name in names:
        (tmp_path / name).write_bytes((package / name).read_bytes())
    own_code = host_scalars._own_code.__wrapped__
    monkeypatch.setattr(host_scalars, "__file__", str(tmp_path / "host_scalars.py"))
    seen = {own_code()}

    assert {"runtime.py", "entry.py", "exports.map"} <= names
    for name in sorted(names):
        with (tmp_path / name).open("a") as file:
            file.write("\n")
        seen.add(own_code())
    assert len(seen) == len(names) + 1
