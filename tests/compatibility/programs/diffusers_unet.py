"""a tiny UNet: 3 training steps, sampling with DDIM."""

import tiny
import torch
from diffusers import DDIMScheduler, UNet2DModel

LIBRARY = "diffusers"


def run(device):
    model = UNet2DModel(
        sample_size=8,
        block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=8,
        layers_per_block=1,
    ).to(device)
    scheduler = DDIMScheduler(num_train_timesteps=50)
    images, noise = torch.rand(2, 3, 8, 8), torch.randn(2, 3, 8, 8)
    images, noise = images.to(device), noise.to(device)
    when = torch.tensor([5, 30], device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def loss_of():
        noisy = scheduler.add_noise(images, noise, when)
        return torch.nn.functional.mse_loss(model(noisy, when).sample, noise)

    losses = tiny.train(optimizer, loss_of, 3)
    scheduler.set_timesteps(4)
    sample = noise
    with torch.no_grad():
        for t in scheduler.timesteps:
            sample = scheduler.step(model(sample, t).sample, t, sample).prev_sample
    return [*losses, sample.abs().mean().item()]
