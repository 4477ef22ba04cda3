"""the same on two ranks of torchrun."""

from two_ranks import figures_of

LIBRARY = "transformers"
NEEDS = ("accelerate",)
ALIAS = True


def run(device):
    return figures_of("transformers_trainer", device)
