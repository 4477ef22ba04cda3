"""generate(): greedy and beam search; dynamic and static cache."""

import tiny

LIBRARY = "transformers"


def run(device):
    model = tiny.llama().to(device).eval()
    prompt = tiny.tokens(2, 6).to(device)
    ways = (
        {},
        {"num_beams": 3},
        {"cache_implementation": "static"},
        {"use_cache": False},
    )
    found = []
    for way in ways:
        out = model.generate(
            prompt,
            max_new_tokens=8,
            min_new_tokens=8,
            do_sample=False,
            pad_token_id=0,
            **way,
        )
        assert out.device.type == device
        found += out.flatten().tolist()
    return [1.0 + token for token in found]
