"""NeuralNetClassifier.fit(): 4 epochs."""

import numpy as np
import torch
from skorch import NeuralNetClassifier

LIBRARY = "skorch"


def run(device):
    x = np.linspace(-1, 1, 120, dtype=np.float32).reshape(40, 3)
    y = (x.sum(1) > 0).astype(np.int64)
    net = NeuralNetClassifier(
        torch.nn.Sequential(
            torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)
        ),
        criterion=torch.nn.CrossEntropyLoss,
        max_epochs=4,
        lr=0.1,
        batch_size=10,
        train_split=None,
        iterator_train__shuffle=False,
        device=device,
        verbose=0,
    ).fit(x, y)
    return [*net.history[:, "train_loss"], *net.forward(x).cpu().sum(0).tolist()]
