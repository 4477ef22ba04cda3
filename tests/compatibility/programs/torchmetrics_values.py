"""accuracy, F1, AUROC, confusion matrix, mean squared error."""

import torch
import torchmetrics

LIBRARY = "torchmetrics"


def run(device):
    generator = torch.Generator().manual_seed(0)
    odds = torch.rand(64, 5, generator=generator).softmax(-1).to(device)
    truth = torch.randint(5, (64,), generator=generator).to(device)
    metrics = torchmetrics.MetricCollection(
        {
            "accuracy": torchmetrics.Accuracy("multiclass", num_classes=5),
            "f1": torchmetrics.F1Score("multiclass", num_classes=5, average="macro"),
            "auroc": torchmetrics.AUROC("multiclass", num_classes=5),
            "confusion": torchmetrics.ConfusionMatrix("multiclass", num_classes=5),
        }
    ).to(device)
    for part in range(4):
        metrics.update(odds[part::4], truth[part::4])
    error = torchmetrics.MeanSquaredError().to(device)
    error.update(odds[:, 0], truth.float())
    found = metrics.compute()
    return [
        *(found[name].item() for name in ("accuracy", "f1", "auroc")),
        *found["confusion"].flatten().tolist(),
        error.compute().item(),
    ]
