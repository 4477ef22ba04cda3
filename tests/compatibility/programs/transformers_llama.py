import tiny


def run(device):
    found = []
    for attention in ("sdpa", "eager"):
        found += tiny.steps(tiny.llama(attention), device, tiny.causal())
    return found
