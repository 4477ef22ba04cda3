"""A minimal call of each name in the requirement documents, with what it did.

CALLS maps a name to the function that calls it and checks a fact which would
not hold if the call did nothing.
"""

from __future__ import annotations

import live_device
import live_functions
from live_calls import CALLS

__all__ = ["CALLS", "live_device", "live_functions"]
