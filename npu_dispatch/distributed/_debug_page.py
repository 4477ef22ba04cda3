"""The calls of hccl on the pages of torch.distributed.debug.

torch's server asks each rank for its flight recorder by the names of handlers. The
name that it has for recorders on a device is NCCL's, which nobody else answers to
where there is no CUDA; the other one, for Gloo's, is taken.
"""

from __future__ import annotations

import json
import pickle

from npu_dispatch.distributed import dump_flight_recorder


def calls_as_json(only_active: bool) -> str:
    """Return this rank's calls, or those that have not ended.

    Raises as dump_flight_recorder() does. Called by csrc/python/distributed.cpp.
    """
    dump = pickle.loads(dump_flight_recorder())  # our own
    if only_active:
        dump["entries"] = [e for e in dump["entries"] if not e["retired"]]
    return json.dumps(dump)
