from two_ranks import figures_of


def run(device):
    return figures_of("accelerate_loop", device)
