"""What the libraries around a training step cost, npu against cpu: transformers'
Trainer with a tiny GPT-2, and what accelerate adds to a bare loop.

The models are made from a configuration, with weights of a fixed seed; nothing is
downloaded.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

import torch
import torch.nn.functional as F
from _harness import Effort, Only, bench, clock, emit
from _peers import Call, Peer, Times, Workers, against_npu, microseconds, timed_case
from models import perceptron
from torch import Tensor

import npu_dispatch

STEPS, CALLS = 20, 100
WARM_STEPS = 3


class Texts(torch.utils.data.Dataset[dict[str, Tensor]]):
    def __len__(self) -> int:
        return 4 * (STEPS + WARM_STEPS)

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        text = torch.randint(64, (16,), generator=torch.Generator().manual_seed(1))
        return {"input_ids": text, "labels": text.clone()}


def trainer_steps(peer: Peer) -> Times:
    """Return what a step of Trainer.train() takes, after the first ones."""
    from transformers import (
        GPT2Config,
        GPT2LMHeadModel,
        PrinterCallback,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    class Clock(TrainerCallback):
        began = 0

        def on_step_begin(self, _: Any, state: Any, *args: Any, **more: Any) -> None:
            if state.global_step == WARM_STEPS:
                peer.wait()
                self.began = clock()

    torch.manual_seed(0)
    none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    sizes = {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4}
    model = GPT2LMHeadModel(GPT2Config(n_positions=64, **sizes, **none))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=STEPS + WARM_STEPS,
            per_device_train_batch_size=4,
            logging_steps=STEPS,
            report_to=[],
            disable_tqdm=True,
            save_strategy="no",
            use_cpu=peer.device == "cpu",
        )
        watch = Clock()
        trainer = Trainer(model, arguments, train_dataset=Texts(), callbacks=[watch])
        trainer.remove_callback(PrinterCallback)  # answers stand on stdout
        trainer.train()
    returned = clock()
    peer.wait()
    return Times(*((t - watch.began) / STEPS / 1e3 for t in (returned, clock())))


def loop(peer: Peer, case: str) -> Call:
    """A step of a small MLP, bare or with what accelerate prepared."""
    torch.manual_seed(0)
    model = perceptron(64, 64, 64).to(peer.device)
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    x, y = (torch.rand(32, 64).to(peer.device) for _ in range(2))
    backward = torch.Tensor.backward
    if case == "accelerate":
        from accelerate import Accelerator

        accelerator = Accelerator(cpu=peer.device == "cpu")
        model, optimizer = accelerator.prepare(model, optimizer)
        backward = accelerator.backward

    def step() -> None:
        backward(F.mse_loss(model(x), y))
        optimizer.step()
        optimizer.zero_grad()

    return step


def time(peer: Peer, case: str, n: int, cpu: int) -> Times:
    """Return the times of a block."""
    if peer.device == "npu":
        npu_dispatch.install_torch_npu_alias()  # accelerate looks for its name
    if case == "trainer_gpt2":
        return trainer_steps(peer)
    return timed_case(loop, peer, case, n, cpu)


@bench(repetitions=(5, 3, 1))
def main(repetitions: int, only: Only, effort: Effort) -> None:
    """Print a JSON line per case."""
    # Neither asks a server for anything.
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    with Workers("npu", "cpu", effort=effort, time=time) as workers:
        if only("trainer_gpt2"):
            workers.report("trainer_gpt2", 1, repetitions)
        if not only("accelerate"):
            return
        bare, prepared = (
            workers.compare(case, CALLS, 4 * repetitions)
            for case in ("bare", "accelerate")
        )
    npu, cpu = (prepared[peer].total - bare[peer].total for peer in ("npu", "cpu"))
    emit(
        case="accelerate",
        added_ratio=round(npu / cpu, 3),
        npu_added_us=round(npu, 1),
        cpu_added_us=round(cpu, 1),
        **against_npu(prepared),
        **microseconds(prepared),
    )


if __name__ == "__main__":
    main()
