"""What is tried of which library. A row is a program of this folder's `programs`.

A program has run(device) and returns the losses, or other figures, that have to
be cpu's. `alias`: it is run with torch_npu's name, which some libraries look for.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    library: str  # as pip knows it; its version is that of the run
    program: str
    what: str
    needs: tuple[str, ...] = ()  # besides the library
    alias: bool = False
    relative: float = 1e-4  # how far losses may be apart


MATRIX = (
    Row(
        "transformers",
        "transformers_trainer",
        "Trainer, tiny GPT-2 with tied weights, 8 steps, evaluation",
        needs=("accelerate",),
        alias=True,
    ),
    Row(
        "transformers",
        "transformers_ranks",
        "the same on two ranks of torchrun",
        needs=("accelerate",),
        alias=True,
    ),
    Row("transformers", "transformers_llama", "Llama: 5 steps, sdpa and eager"),
    Row("transformers", "transformers_bert", "BERT, masked language model: 5 steps"),
    Row("transformers", "transformers_mixtral", "Mixtral, 4 experts: 5 steps"),
    Row("transformers", "transformers_t5", "T5: 5 steps"),
    Row(
        "transformers",
        "transformers_generate",
        "generate(): greedy, beams; dynamic and static cache",
    ),
    Row(
        "transformers",
        "transformers_checkpointing",
        "Llama, gradient checkpointing: 5 steps",
    ),
    Row(
        "transformers",
        "transformers_save",
        "save_pretrained(), from_pretrained(device_map), the loss of both",
        needs=("accelerate", "safetensors"),
        alias=True,
    ),
    Row(
        "accelerate",
        "accelerate_loop",
        "prepare(), accumulation, clipping: 8 steps",
        alias=True,
    ),
    Row(
        "accelerate",
        "accelerate_ranks",
        "the same on two ranks of torchrun",
        alias=True,
    ),
    Row(
        "deepspeed",
        "deepspeed_accelerator",
        "its accelerator: streams, events, generators, memory, graphs; 5 steps",
        alias=True,
    ),
    Row("peft", "peft_lora", "LoRA on Llama: 5 steps, merged", needs=("transformers",)),
    Row("peft", "peft_dora", "DoRA on Llama: 5 steps", needs=("transformers",)),
    Row("diffusers", "diffusers_unet", "tiny UNet: 3 steps, a DDIM loop"),
    Row("torch-geometric", "geometric_graphs", "GCN and GAT: 5 steps each"),
    Row(
        "torchmetrics", "torchmetrics_values", "accuracy, F1, AUROC, MSE, a collection"
    ),
    Row("einops", "einops_layers", "rearrange, reduce, einsum, a layer: 5 steps"),
    Row("safetensors", "safetensors_files", "save_file(), load_file(device), slices"),
    Row(
        "lightning",
        "lightning_fit",
        "Trainer.fit() on SingleDeviceStrategy: 8 steps",
    ),
    Row("ray", "ray_workers", "examples/train_ray.py: 4 steps of two workers"),
    Row(
        "stable-baselines3",
        "sb3_ppo",
        "PPO on CartPole: one update of what cpu played, losses and weights",
        needs=("gymnasium",),
        relative=1e-3,
    ),
    Row(
        "stable-baselines3",
        "sb3_dqn",
        "DQN on CartPole: 50 updates, the network's outputs",
        needs=("gymnasium",),
        relative=1e-3,
    ),
)
