"""a supervised trainer, an evaluator, metrics: 12 training steps."""

import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Loss, MeanAbsoluteError, RunningAverage

LIBRARY = "pytorch-ignite"


def run(device):
    model = torch.nn.Linear(4, 1).to(device)
    batches = [(torch.rand(8, 4), torch.rand(8, 1)) for _ in range(6)]
    loss = torch.nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = create_supervised_trainer(model, optimizer, loss, device=device)
    RunningAverage(output_transform=lambda x: x).attach(trainer, "average")
    losses = []
    trainer.add_event_handler(
        Events.ITERATION_COMPLETED, lambda engine: losses.append(engine.state.output)
    )
    trainer.run(batches, max_epochs=2)
    metrics = {
        "mse": Loss(loss, device=device),
        "mae": MeanAbsoluteError(device=device),
    }
    evaluator = create_supervised_evaluator(model, metrics, device=device)
    found = evaluator.run(batches).metrics
    return [*losses, trainer.state.metrics["average"], found["mse"], found["mae"]]
