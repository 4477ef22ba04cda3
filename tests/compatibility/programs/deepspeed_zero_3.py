from two_ranks import figures_of


def run(device):
    return figures_of("deepspeed_zero", device, stage=3)
