"""Tiny models and batches, the same on each device."""

from __future__ import annotations

import torch


def tokens(n=4, length=16, vocabulary=64, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(vocabulary, (n, length), generator=generator)


def llama(attention="sdpa"):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        attn_implementation=attention,
    )
    return LlamaForCausalLM(config)


def bert(kind):
    """Return a model of transformers' BERT; `kind` names its class."""
    import transformers

    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return getattr(transformers, kind)(config)


def train(optimizer, loss_of, n):
    """Do steps; return the losses, which a function works out."""
    losses = []
    for _ in range(n):
        loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def steps(model, device, inputs, n=5):
    """Train a model that gives its loss; return the losses."""
    model = model.to(device).train()
    inputs = {name: value.to(device) for name, value in inputs.items()}
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3)
    return train(optimizer, lambda: model(**inputs).loss, n)


def causal():
    ids = tokens()
    return {"input_ids": ids, "labels": ids}
