from two_ranks import figures_of


def run(device):
    return figures_of("transformers_trainer", device)
