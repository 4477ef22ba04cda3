"""the same with ZeRO-3."""

from two_ranks import figures_of

LIBRARY = "deepspeed"
ALIAS = True


def run(device):
    return figures_of("deepspeed_zero", device, stage=3)
