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
    # Installed without what they require, and seen by this row alone.
    apart: tuple[str, ...] = ()
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
    Row(
        "transformers",
        "transformers_mixed",
        "the same with bf16=True",
        needs=("accelerate",),
        alias=True,
        relative=2e-2,
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
        "transformers_sampling",
        "generate(do_sample=True): temperature, top-k, top-p, min-p, penalties",
    ),
    Row(
        "transformers",
        "transformers_pipeline",
        "pipeline(): text-generation, fill-mask, feature-extraction",
        needs=("tokenizers",),
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
        "accelerate",
        "accelerate_launch",
        "the same by `accelerate launch --num_processes 2`",
        alias=True,
    ),
    Row(
        "deepspeed",
        "deepspeed_accelerator",
        "its accelerator: streams, events, generators, memory, graphs; 5 steps",
        alias=True,
    ),
    Row(
        "deepspeed",
        "deepspeed_zero_1",
        "ZeRO-1 on two ranks, accumulation, clipping: 8 batches",
        alias=True,
    ),
    Row(
        "deepspeed",
        "deepspeed_zero_3",
        "the same with ZeRO-3",
        alias=True,
    ),
    Row("peft", "peft_lora", "LoRA on Llama: 5 steps, merged", needs=("transformers",)),
    Row("peft", "peft_dora", "DoRA on Llama: 5 steps", needs=("transformers",)),
    Row(
        "peft",
        "peft_decomposed",
        "PiSSA and OLoRA on Llama: 5 steps each",
        needs=("transformers",),
    ),
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
        "Trainer(accelerator=...).fit(): 8 steps",
    ),
    Row(
        "lightning",
        "lightning_mixed",
        'the same with precision="bf16-mixed"',
        relative=2e-2,
    ),
    Row(
        "lightning",
        "lightning_ranks",
        'the same with strategy="ddp" on two devices',
    ),
    Row("lightning", "fabric_loop", "Fabric: 4 steps, clipping"),
    Row("lightning", "fabric_ranks", 'the same with strategy="ddp" on two devices'),
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
    Row("opt-einsum", "opt_einsum_paths", "contract(), an expression, gradients"),
    Row(
        "kornia",
        "kornia_images",
        "blur, colours, rotation, SSIM, gradients",
    ),
    Row(
        "torchdiffeq",
        "torchdiffeq_ode",
        "odeint() by rk4 and dopri5, adjoint, gradients",
    ),
    Row("torchsde", "torchsde_paths", "sdeint() along a given path, gradients"),
    Row("gpytorch", "gpytorch_regression", "exact regression: 5 steps, a prediction"),
    Row("pyro-ppl", "pyro_svi", "SVI: 8 steps"),
    Row("tensordict", "tensordict_batches", "TensorDict, its modules, a step"),
    Row("torchrl", "torchrl_losses", "GAE and ClipPPOLoss: 4 steps"),
    Row("skorch", "skorch_fit", "NeuralNetClassifier.fit(): 4 epochs"),
    Row("pytorch-ignite", "ignite_engine", "trainer, evaluator, metrics: 12 steps"),
    Row(
        "captum",
        "captum_attributions",
        "integrated gradients, DeepLift, Grad-CAM",
    ),
    Row("e3nn", "e3nn_points", "tensor product, spherical harmonics, gradients"),
    Row(
        "schedulefree",
        "optimizers_of_others",
        "AdamWScheduleFree, Lion: 6 steps each",
        needs=("lion-pytorch",),
    ),
    Row(
        "pytorch-metric-learning",
        "metric_learning_losses",
        "a miner and three losses, gradients",
    ),
    Row(
        "x-transformers",
        "x_transformers_decoder",
        "rotary decoder: 4 steps, generate()",
    ),
    Row("entmax", "entmax_losses", "sparsemax, entmax15, its loss, gradients"),
    Row(
        "vector-quantize-pytorch", "quantized_vectors", "VectorQuantize, FSQ, gradients"
    ),
    Row("nflows", "flows_density", "masked autoregressive flow: 5 steps"),
    Row(
        "snntorch", "spiking_neurons", "two leaky layers in 10 steps of time, gradients"
    ),
    Row("torch-ema", "averaged_weights", "averages of weights: 5 steps"),
    Row(
        "sentence-transformers",
        "sentences",
        "pooled BERT, cos_sim(), semantic_search()",
        needs=("transformers",),
    ),
    Row("torchao", "weight_only_products", "int8 weights of linear layers"),
    Row("torchao", "dynamic_products", "int8 activations and weights of linear layers"),
    Row(
        "timm",
        "timm_models",
        "resnet18 and vit_tiny_patch16_224: 3 steps each",
        needs=("huggingface-hub", "pyyaml", "safetensors"),
        apart=("timm", "torchvision", "pillow"),
    ),
    Row(
        "torchvision",
        "vision_models",
        "transforms.v2, mobilenet_v3_small, losses and IoU of boxes",
        needs=("numpy",),
        apart=("torchvision", "pillow"),
    ),
    Row(
        "tensorboard",
        "tensorboard_files",
        "SummaryWriter: scalars, histograms, an image, the graph",
    ),
    Row("torch", "function_transforms", "torch.func: vmap, grad, jacrev, jvp, hessian"),
    Row("torch", "exported_programs", "torch.export: dynamic shapes, save(), load()"),
    Row(
        "torch",
        "cuda_gpt",
        "a GPT that names cuda, bf16, by `npu-dispatch run --cuda`: 8 steps, samples",
        relative=2e-2,
    ),
    Row(
        "torch",
        "cuda_gan",
        "a convolutional GAN that names cuda, the same way: 4 steps",
    ),
    Row(
        "torch",
        "cuda_vae",
        "a variational autoencoder that names cuda, the same way: 9 steps",
    ),
)
