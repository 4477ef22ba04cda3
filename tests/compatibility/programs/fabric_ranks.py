"""the same with strategy="ddp" on two devices."""

from two_ranks import figures_of

LIBRARY = "lightning"


def run(device):
    return figures_of("fabric_loop", device, (), devices=2, strategy="ddp")
