"""What every part of the campaign is told: how long it may take, and its seed."""

from __future__ import annotations

import argparse
import random


def parser(description: str | None, seconds: float = 60) -> argparse.ArgumentParser:
    """Return one with these options; without a seed, what is drawn is new."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seconds", type=float, default=seconds)
    seed = random.SystemRandom().randrange(1 << 32)
    parser.add_argument("--seed", type=int, default=seed)
    return parser
