"""Train a GPT on the source text of Python's standard library.

    npu-dispatch run examples/train_gpt.py --device npu

Weights and batches come from the seed alone, on the CPU, so that runs on
different devices see the same numbers.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TextIO

import click
import gpt
import torch
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

console = Console(stderr=True)


class Log:
    """JSON lines, one a step. Losses are read every `every` steps: reading waits."""

    def __init__(self, file: TextIO | None, device: str, every: int) -> None:
        self._file, self._every = file, every
        self._depth = None
        if device.startswith("npu") and file:
            from npu_dispatch.observe.segment import StatsReader, segment_file

            if segment_file().exists():
                self._depth = StatsReader(segment_file()).depth
        self._waiting: list[tuple[dict[str, float], torch.Tensor]] = []
        self.last_loss = float("nan")

    def add(self, step: int, loss: torch.Tensor, seconds: float) -> None:
        record: dict[str, float] = {"step": step, "step_ms": seconds * 1e3}
        if self._depth:
            record["depth"] = self._depth()
        self._waiting.append((record, loss))
        if len(self._waiting) >= self._every:
            self.flush()

    def flush(self) -> None:
        if not self._waiting:
            return
        losses = torch.stack([loss for _, loss in self._waiting]).tolist()
        for (record, _), value in zip(self._waiting, losses, strict=True):
            record["loss"] = value
            if self._file:
                self._file.write(json.dumps(record) + "\n")
        if self._file:
            self._file.flush()
        self.last_loss = losses[-1]
        self._waiting.clear()


def save(path: Path, step: int, model, optimizer, generator) -> None:
    """Write a checkpoint whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    state = {
        "step": step,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "batches": generator.get_state(),
    }
    torch.save(state, partial)
    partial.replace(path)


@click.command()
@click.option("--device", default="npu", show_default=True)
@click.option("--size", type=click.Choice(list(gpt.SIZES)), default="small")
@click.option("--steps", default=200, show_default=True, help="Steps in all.")
@click.option("--seed", default=0, show_default=True)
@click.option("--lr", default=1e-3, show_default=True)
@click.option("--checkpoint", type=click.Path(path_type=Path), help="Save here.")
@click.option("--resume", is_flag=True, help="Go on from the checkpoint.")
@click.option("--log", "log_file", type=click.Path(path_type=Path))
@click.option(
    "--log-every", default=10, show_default=True, help="Read losses so often."
)
@click.option("--sample", default=120, show_default=True, help="Bytes to write.")
def main(
    device: str,
    size: str,
    steps: int,
    seed: int,
    lr: float,
    checkpoint: Path | None,
    resume: bool,
    log_file: Path | None,
    log_every: int,
    sample: int,
) -> None:
    """Train, then write some text."""
    if device.startswith("npu"):
        import npu_dispatch  # noqa: F401 (a no-op where torch has loaded it)
    if resume and not checkpoint:
        raise click.UsageError("--resume needs --checkpoint")
    torch.manual_seed(seed)
    batches = torch.Generator().manual_seed(seed)
    text = gpt.standard_library()
    model = gpt.GPT(gpt.SIZES[size])
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    first = 0
    if checkpoint and resume:
        state = torch.load(checkpoint, map_location="cpu", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        batches.set_state(state["batches"])
        first = state["step"]

    if log_file:
        log_file.parent.mkdir(parents=True, exist_ok=True)
    file = log_file.open("a" if resume else "w") if log_file else None
    log = Log(file, device, log_every)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"),
        TimeRemainingColumn(),
    )
    began = time.perf_counter()
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(
            f"{size} GPT on {device}", total=steps, completed=first, loss=float("nan")
        )
        before = began
        for step in range(first, steps):
            batch = gpt.draw_batch(text, model.size, batches)
            if device != "cpu":  # a copy from pinned memory does not wait
                batch = batch.pin_memory()
            batch = batch.to(device, non_blocking=True)
            optimizer.zero_grad(set_to_none=True)
            loss = model.loss(batch)
            loss.backward()
            optimizer.step()
            now = time.perf_counter()
            log.add(step, loss.detach(), now - before)
            before = now
            if step % log_every == 0:
                progress.update(bar, completed=step + 1, loss=log.last_loss)
        log.flush()
        progress.update(bar, completed=steps, loss=log.last_loss)
    seconds = time.perf_counter() - began
    if file:
        file.close()
    if checkpoint:
        save(checkpoint, steps, model, optimizer, batches)
    done = max(1, steps - first)
    console.print(
        f"{device}: loss {log.last_loss:.4f} after {steps} steps, "
        f"{1e3 * seconds / done:.2f} ms a step"
    )
    if sample:
        words = model.sample(b"def ", sample, torch.Generator().manual_seed(seed))
        print(words.decode("utf-8", errors="replace"))


if __name__ == "__main__":
    main()
