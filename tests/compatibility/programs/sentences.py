"""mean pooling of a BERT, cos_sim(), semantic_search(), gradients."""

import tiny
import torch
from sentence_transformers import models, util

LIBRARY = "sentence-transformers"
NEEDS = ("transformers",)


def run(device):
    bert = tiny.bert("BertModel").to(device)
    pooling = models.Pooling(32, "mean")
    ids = tiny.tokens().to(device)
    mask = torch.ones_like(ids)

    def embedded(ids):
        features = {
            "token_embeddings": bert(ids).last_hidden_state,
            "attention_mask": mask[: len(ids)],
        }
        return pooling(features)["sentence_embedding"]

    similar = util.cos_sim(embedded(ids), embedded(ids.flip(1)))
    labels = torch.arange(len(ids), device=device)
    loss = torch.nn.functional.cross_entropy(20 * similar, labels)
    loss.backward()
    found = util.semantic_search(embedded(ids[:2]), embedded(ids), top_k=2)
    return [loss.item(), *(hit["score"] for hits in found for hit in hits)]
