"""Trainer on a tiny GPT-2 with tied weights: 8 training steps, evaluation."""

import tempfile

import tiny
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

LIBRARY = "transformers"
NEEDS = ("accelerate",)
ALIAS = True
RANKS = {
    "transformers_ranks": {
        "what": "Trainer on the tiny GPT-2 with two ranks of torchrun"
    }
}


class Texts(torch.utils.data.Dataset):
    ids = tiny.tokens(32)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


def run(device, **options):
    none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64, **none
        )
    )
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        max_steps=8,
        per_device_train_batch_size=4,
        logging_steps=1,
        learning_rate=1e-3,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        use_cpu=device == "cpu",
        **options,
    )
    trainer = Trainer(model, arguments, train_dataset=Texts(), eval_dataset=Texts())
    assert trainer.args.device.type == device
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert model.lm_head.weight is model.transformer.wte.weight
    return [*losses, trainer.evaluate()["eval_loss"]]
