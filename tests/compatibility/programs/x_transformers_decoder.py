"""a decoder with rotary embeddings: 4 training steps, generate()."""

import tiny
import torch
from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

LIBRARY = "x-transformers"


def run(device):
    layers = Decoder(dim=32, depth=2, heads=4, rotary_pos_emb=True, use_rmsnorm=True)
    model = AutoregressiveWrapper(
        TransformerWrapper(num_tokens=64, max_seq_len=32, attn_layers=layers)
    ).to(device)
    ids = tiny.tokens().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = tiny.train(optimizer, lambda: model(ids), 4)
    made = model.generate(ids[:, :4], 8, temperature=0.0)
    return [*losses, *made.flatten().tolist()]
