"""Writes the operator sources: gen.py OUTPUT_DIRECTORY SHARDS.

Files whose text has not changed are left alone, so an incremental build only
compiles what is new.
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from emit import shard
from select_ops import select


def main() -> None:
    directory, count = Path(sys.argv[1]), int(sys.argv[2])
    directory.mkdir(parents=True, exist_ok=True)
    shards: list[list] = [[] for _ in range(count)]
    # All forms of an operator share a runner, hence a file.
    for _, group in groupby(select(), key=lambda op: op.header):
        min(shards, key=len).extend(group)
    for i, ops in enumerate(shards):
        path = directory / f"ops_{i:02}.cpp"
        text = shard(ops)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


if __name__ == "__main__":
    main()
