"""resnet18 and vit_tiny_patch16_224: 3 training steps each."""

import tiny
import torch
import vision_names  # noqa: F401
from timm import create_model
from timm.optim import create_optimizer_v2

LIBRARY = "timm"
NEEDS = ("huggingface-hub", "pyyaml", "safetensors")
APART = ("timm", "torchvision", "pillow")


def run(device):
    images = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    images, labels = images.to(device), torch.tensor([1, 3], device=device)
    losses = []
    for name, options in (("resnet18", {}), ("vit_tiny_patch16_224", {"img_size": 64})):
        torch.manual_seed(0)
        model = create_model(name, num_classes=5, **options).to(device).train()
        optimizer = create_optimizer_v2(model, opt="sgd", lr=1e-2)

        def loss(model=model):
            return torch.nn.functional.cross_entropy(model(images), labels)

        losses += tiny.train(optimizer, loss, 3)
    return losses
