"""stochastic variational inference (SVI): 8 training steps."""

import pyro
import torch
from pyro.distributions import Delta, Normal
from pyro.infer import SVI, Trace_ELBO

LIBRARY = "pyro-ppl"


def run(device):
    data = torch.linspace(-1, 3, 20, device=device)

    def model(data):
        mean = pyro.sample("mean", Normal(torch.zeros((), device=device), 10.0))
        with pyro.plate("data", len(data)):
            pyro.sample("seen", Normal(mean, 1.0), obs=data)

    def guide(data):
        at = pyro.param("at", torch.tensor(0.5, device=device))
        pyro.sample("mean", Delta(at))

    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    inference = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
    losses = [inference.step(data) for _ in range(8)]
    return [*losses, pyro.param("at").item()]
