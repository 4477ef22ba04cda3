"""Looks, guided by coverage, for files that end a reader of other processes' files.

`python -m tests.torture.guided KIND --seconds 60 [--seed N] [--corpus DIR]`, with
atheris; prints JSON. What it tries are edits of a file that a process has left: words,
at places that are used. Dumps are small, so their bytes are tried as they are. A
finding does not end it: each place is told once.
"""

import argparse
import functools
import json
import os
import random
import re
import resource
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

KINDS = {  # and the file that is read
    "segment": "segment",
    "collectives": "segment",
    "trace": "trace",
    "dump": "dump",
}
LIMIT_BYTES = 4 << 30
EDIT = struct.Struct("<BIQ")  # size, place, value
MOST_EDITS = 16
EXECUTED = re.compile(r"stat::number_of_executed_units:\s*(\d+)")


class Target:
    """A file of one kind, which is edited, read and mended again and again."""

    def __init__(self, kind: str, path: Path, findings: Path) -> None:
        from npu_dispatch.observe.segment.layout import EXTENSION_AT
        from tests.torture import damaged_files

        self.read = functools.partial(damaged_files.read, KINDS[kind])
        self.path, self.findings, self.kind = path, findings, kind
        self.known: set[str] = set()
        data = path.read_bytes()
        log_at = EXTENSION_AT
        begin, end = {"segment": (0, log_at), "collectives": (log_at, len(data))}.get(
            kind, (0, len(data))
        )
        # Where something is, and the beginning, which says where that is.
        self.places = [
            at
            for at in range(begin, min(end, len(data)) - 8, 8)
            if at < begin + 4096 or data[at : at + 8] != bytes(8)
        ]
        self.words = {at: data[at : at + 8] for at in self.places}
        self.file = os.open(path, os.O_RDWR)

    def __call__(self, data: bytes) -> None:
        if self.kind == "dump":
            os.ftruncate(self.file, 0)
            os.pwrite(self.file, data, 0)
            self._try(data)
            return
        touched = []
        whole = len(data) - len(data) % EDIT.size
        for size, place, value in EDIT.iter_unpack(data[:whole]):
            at = self.places[place % len(self.places)]
            touched.append(at)
            os.pwrite(self.file, value.to_bytes(8, "little")[: 1 + size % 8], at)
        self._try(data)
        for at in touched:
            os.pwrite(self.file, self.words[at], at)

    def _try(self, data: bytes) -> None:
        wrong = self.read(self.path)
        place = wrong.rpartition(" at ")[2]
        if wrong and place not in self.known:
            self.known.add(place)
            with self.findings.open("a") as file:
                found = {"what": wrong, "input": data.hex()}
                file.write(json.dumps(found) + "\n")


def fuzz(kind: str, path: Path, findings: Path, options: list[str]) -> None:
    """Never returns: libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=["npu_dispatch", "tests.torture"]):
        target = Target(kind, path, findings)
    atheris.Setup([sys.argv[0], *options], target)
    atheris.Fuzz()


def campaign(kind: str, seconds: int, seed: int, corpus: Path) -> dict[str, Any]:
    """Fuzz in a process of its own; return executions and findings."""
    from tests.torture import damaged_files

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))

    corpus.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        data = damaged_files.samples(folder)[KINDS[kind]]
        path, findings = folder / "9", folder / "findings"
        damaged_files.write(kind, path, data)
        # What it begins with; from nothing it would take long to make an edit.
        rng = random.Random(seed)
        for number in range(16):
            begin = data if kind == "dump" else rng.randbytes(EDIT.size * (number + 1))
            (corpus / f"begin{number}").write_bytes(begin)
        findings.touch()
        options = [
            f"-max_total_time={seconds}",
            f"-seed={seed + 1}",  # 0 would be the time
            f"-max_len={len(data) if kind == 'dump' else EDIT.size * MOST_EDITS}",
            "-len_control=0",
            "-timeout=30",
            "-rss_limit_mb=2048",
            f"-artifact_prefix={corpus}/",
            "-print_final_stats=1",
            str(corpus),
        ]
        ended = subprocess.run(
            [
                *(sys.executable, "-m", "tests.torture.guided", kind),
                *("--fuzz", str(folder), *options),
            ],
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=limited,
        )
        said = EXECUTED.search(ended.stderr)
        found = [json.loads(line)["what"] for line in findings.open()]
        if ended.returncode:
            found.append(f"status {ended.returncode}: {ended.stderr[-1000:]}")
        return {
            "kind": kind,
            "seconds": seconds,
            "executions": int(said[1]) if said else 0,
            "findings": found,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--corpus", type=Path, default=Path("out/guided"))
    parser.add_argument("--fuzz", type=Path, help=argparse.SUPPRESS)
    asked, options = parser.parse_known_args()
    if asked.fuzz:
        fuzz(asked.kind, asked.fuzz / "9", asked.fuzz / "findings", options)
    told = campaign(
        asked.kind, asked.seconds, asked.seed, asked.corpus.resolve() / asked.kind
    )
    print(json.dumps(told, indent=2))
    sys.exit(bool(told["findings"]))


if __name__ == "__main__":
    main()
