"""integrated gradients, saliency, DeepLift, Grad-CAM."""

import torch
from captum.attr import DeepLift, IntegratedGradients, LayerGradCam, Saliency

LIBRARY = "captum"


def run(device):
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(16, 3),
    ).to(device)
    images = torch.rand(2, 3, 8, 8).to(device)
    found = [
        IntegratedGradients(model).attribute(images, target=1, n_steps=8),
        Saliency(model).attribute(images.clone().requires_grad_(), target=1),
        DeepLift(model).attribute(images, torch.zeros_like(images), target=1),
        LayerGradCam(model, model[0]).attribute(images, target=1),
    ]
    return [float(f(one)) for one in found for f in (torch.sum, torch.max, torch.min)]
