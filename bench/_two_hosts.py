"""Two network namespaces of this machine, joined by a link of a given rate."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

# A burst is what may leave at once; the latency, how long the rest may wait.
LINK = """\
ip -n {a} link add name link type veth peer name link netns {b}
ip -n {a} addr add 10.7.7.1/24 dev link
ip -n {b} addr add 10.7.7.2/24 dev link
"""
EACH = """\
ip -n {one} link set dev link up
ip -n {one} link set dev lo up
tc -n {one} qdisc add dev link root tbf rate {rate} burst 256kb latency 50ms
"""


def run(commands: str) -> bool:
    """Run lines until one fails, and return whether none did."""
    return all(
        not subprocess.run(line.split(), capture_output=True).returncode
        for line in commands.splitlines()
    )


@contextmanager
def two_hosts(rate: str) -> Iterator[list[tuple[str, ...]] | None]:
    """Make two, and give the commands that run a program in each of them.

    None: ip and tc are missing, or this user may not make network namespaces. In
    each, the link is called `link`.
    """
    if not all(shutil.which(tool) for tool in ("ip", "tc")):
        yield None
        return
    names = [f"npu{os.getpid()}{end}" for end in "ab"]
    try:
        commands = "".join(f"ip netns add {name}\n" for name in names)
        commands += LINK.format(a=names[0], b=names[1])
        for name in names:
            commands += EACH.format(one=name, rate=rate)
        made = run(commands)
        yield [("ip", "netns", "exec", name) for name in names] if made else None
    finally:
        for name in names:
            run(f"ip netns del {name}")
