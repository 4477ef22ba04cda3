"""pipeline(): text-generation, fill-mask, feature-extraction."""

import tiny
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, pipeline

LIBRARY = "transformers"
NEEDS = ("tokenizers",)

TEXTS = ["one two three", "four five six seven", "eight nine"]


def tokenizer():
    """Return one that knows as many words as the tiny models."""
    words = ["[PAD]", "[UNK]", "[MASK]", *" ".join(TEXTS).split()]
    words += [f"w{i}" for i in range(64 - len(words))]
    known = {word: i for i, word in enumerate(words)}
    made = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]"}
    return PreTrainedTokenizerFast(tokenizer_object=made, **names, padding_side="left")


def run(device):
    words = tokenizer()

    def piped(task, model):
        made = pipeline(task, model=model.eval(), tokenizer=words, device=device)
        assert made.device.type == device and made.model.device.type == device
        return made

    write = piped("text-generation", tiny.llama())
    found = []
    # The best word alone may be drawn, so the devices' own random numbers do not tell.
    for way in ({"do_sample": False}, {"do_sample": True, "top_k": 1}):
        way |= {"max_new_tokens": 6, "batch_size": 2, "return_tensors": True}
        for told in write(TEXTS, **way):
            found += told[0]["generated_token_ids"]
    masked = piped("fill-mask", tiny.bert("BertForMaskedLM"))
    found += [told["score"] for told in masked("one [MASK] three", top_k=4)]
    features = piped("feature-extraction", tiny.bert("BertModel"))
    found += torch.tensor(features(TEXTS[0])).flatten().tolist()
    return [1.0 + figure for figure in found]
