"""the same on two ranks of torchrun."""

from two_ranks import figures_of

LIBRARY = "accelerate"
ALIAS = True


def run(device):
    return figures_of("accelerate_loop", device)
