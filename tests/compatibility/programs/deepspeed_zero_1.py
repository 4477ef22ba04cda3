"""ZeRO-1 on two ranks, accumulation, clipping: 8 batches."""

from two_ranks import figures_of

LIBRARY = "deepspeed"
ALIAS = True


def run(device):
    return figures_of("deepspeed_zero", device, stage=1)
