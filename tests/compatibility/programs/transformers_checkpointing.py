import tiny


def run(device):
    model = tiny.llama()
    model.gradient_checkpointing_enable()
    return tiny.steps(model, device, tiny.causal())
