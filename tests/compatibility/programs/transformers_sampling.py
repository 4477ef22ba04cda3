"""generate(do_sample=True): temperature, top-k, top-p, min-p, penalties."""

import tiny
import torch
from transformers import LogitsProcessor, LogitsProcessorList
from transformers.generation import (
    EpsilonLogitsWarper,
    MinPLogitsWarper,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

LIBRARY = "transformers"

WAYS = (
    (TemperatureLogitsWarper(0.7), TopKLogitsWarper(12)),
    (RepetitionPenaltyLogitsProcessor(1.3), TopPLogitsWarper(0.8)),
    (MinPLogitsWarper(0.02), TypicalLogitsWarper(0.9)),
    (EpsilonLogitsWarper(1e-3), NoRepeatNGramLogitsProcessor(2)),
)


class Drawn(LogitsProcessor):
    """Leaves one word, drawn by noise of cpu's: each device has numbers of its own."""

    def __init__(self):
        self.generator = torch.Generator().manual_seed(3)

    def __call__(self, ids, scores):
        noise = torch.rand(scores.shape, generator=self.generator).to(scores.device)
        drawn = (scores - (-noise.log()).log()).argmax(-1, keepdim=True)
        return torch.full_like(scores, -torch.inf).scatter(1, drawn, 0.0)


def run(device):
    model = tiny.llama().to(device).eval()
    prompt = tiny.tokens(4, 6).to(device)
    how = {"do_sample": True, "max_new_tokens": 8, "min_new_tokens": 8}
    how["pad_token_id"] = 0
    found = []
    for way in WAYS:
        chosen = LogitsProcessorList([*way, Drawn()])
        out = model.generate(prompt, logits_processor=chosen, top_k=0, **how)
        found += out.flatten().tolist()
    twice = []
    for _ in range(2):
        torch.manual_seed(5)
        twice.append(model.generate(prompt, temperature=0.7, top_p=0.9, **how))
    assert twice[0].equal(twice[1])
    return [1.0 + token for token in found]
