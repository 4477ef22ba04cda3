"""What a report of the race sanitizer says."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["KINDS", "Access", "Frame", "Report"]

KINDS = {
    "write/write": "two writes to the same bytes that nothing orders",
    "read/write": "a read and a write of the same bytes that nothing orders",
    "allocator-reuse": "memory was allocated again while another stream may use it",
    "use-after-free": "a task uses memory that was freed before it was launched",
    "host-read": "the host reads its own memory while queued work still writes it",
    "host-write": "the host writes its own memory while queued work still uses it",
    "unordered-foreign-launch": "submitted work uses the same bytes without an order",
    "unordered-collective": "a collective uses the same bytes without an order",
    "overwritten-result": "the replay of another graph of the pool has overwritten it",
}


@dataclass(frozen=True, slots=True)
class Frame:
    file: str
    line: int
    function: str
    user: bool  # not in torch, this package or Python itself

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


@dataclass(frozen=True, slots=True)
class Access:
    """One of the two accesses: by an operator, by other work, or by the host."""

    op: str
    argument: str
    stream: str  # "npu:0 stream 3", or "the host"
    task: int  # its number in the stream
    mode: str  # "read", "write"
    range: tuple[int, int]  # addresses that bound what it touches
    stack: tuple[Frame, ...]  # user frames first, innermost first
    forward: tuple[Frame, ...] = ()  # in backward: that of the forward call
    stream_made: str = ""  # the line that made the stream; "" when not known

    @property
    def where(self) -> Frame | None:
        """The user's innermost line."""
        return self.stack[0] if self.stack else None

    def text(self) -> str:
        verb = {"read": "reads", "write": "writes"}[self.mode]
        stream = self.stream
        if self.stream_made:
            stream += f", made at {self.stream_made}"
        lines = [f"{self.op} {verb} {self.argument} on {stream}"]
        if self.op == "free":  # the first of a use-after-free
            lines = [f"freed on {stream}"]
        shown = [f for f in self.stack if f.user] or list(self.stack)
        lines += [f"    {frame}" for frame in shown[:8]]
        if self.forward:
            lines.append(f"    in the backward of the call at {self.forward[0]}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Report:
    """Two accesses that nothing orders, and a call that would order them."""

    kind: str  # a key of KINDS
    first: Access
    second: Access
    allocation: tuple[Frame, ...]  # where the block was allocated
    freed: tuple[Frame, ...]  # where its last life ended, for reuse and free
    bytes: int  # of the block
    pinned: bool
    edge: str  # the ordering that is missing
    suggestion: str  # a call that adds it
    count: int = 1  # how often the same two lines were found
    pid: int = 0  # of the process that found it
    rank: int | None = None  # of that process, where it has one

    @property
    def key(self) -> tuple[object, ...]:
        """A key that is equal for reports of the same two places."""
        one, two = self.first, self.second
        return (self.kind, one.op, one.where, two.op, two.where)

    def again(self) -> Report:
        return replace(self, count=self.count + 1)

    def text(self) -> str:
        memory = "pinned buffer" if self.pinned else "block"
        lines = [
            f"npu sanitizer: {self.kind}: {KINDS[self.kind]}",
            f"  first:  {_indent(self.first.text())}",
            f"  second: {_indent(self.second.text())}",
        ]
        if self.allocation:
            lines.append(
                f"  {memory} of {self.bytes} bytes allocated at {self.allocation[0]}"
            )
        if self.freed:
            lines.append(f"  freed before at {self.freed[0]}")
        lines += [f"  missing: {self.edge}", f"  fix: {self.suggestion}"]
        if self.count > 1:
            lines.append(f"  found {self.count} times")
        return "\n".join(lines)


def _indent(text: str) -> str:
    return text.replace("\n", "\n  ")
