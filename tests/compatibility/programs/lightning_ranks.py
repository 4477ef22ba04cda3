"""the same with strategy="ddp" on two devices."""

from two_ranks import figures_of

LIBRARY = "lightning"


def run(device):
    # Lightning starts the second rank itself: it runs the script once more.
    return figures_of("lightning_fit", device, (), devices=2, strategy="ddp")
