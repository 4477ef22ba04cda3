from two_ranks import figures_of


def run(device):
    return figures_of("fabric_loop", device, (), devices=2, strategy="ddp")
