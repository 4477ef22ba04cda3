"""A store for each start of a job: what earlier ranks left there is not read.

Under torchrun the agent's store outlives the workers. Those that are restarted
would find the addresses of the dead ones, and connect to nobody until the
timeout. The restart's number does not tell the starts apart: agents of several
hosts count their own. So the ranks agree on a name for this one.
"""

from __future__ import annotations

import secrets
import time
from datetime import timedelta
from typing import Any

_POLL_S = 0.002  # between two looks at the store


def outlives_ranks() -> bool:
    """Return whether the default group's store is the agent's."""
    from torch.distributed.rendezvous import _torchelastic_use_agent_store

    return _torchelastic_use_agent_store()


def store_of_this_start(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """Return a part of the store that only ranks of this start use; all call it.

    Every rank writes a word of its own and is content when rank 0 repeats it;
    rank 0 when every rank has repeated the name that it chose. A word that a
    dead rank left is repeated too, and makes nobody content. Raises
    DistStoreError that names the ranks which have not come within the timeout.
    """
    from torch._C._distributed_c10d import PrefixStore

    store = PrefixStore("npu_dispatch/start", store)
    mine = secrets.token_hex(8)
    deadline = time.monotonic() + timeout.total_seconds()
    if rank == 0:
        name = _welcome(store, mine, size, deadline)
    else:
        store.set(f"word/{rank}", mine)
        name = _be_welcomed(store, rank, mine, deadline)
    return PrefixStore(name, store)


def _welcome(store: Any, name: str, size: int, deadline: float) -> str:
    told: dict[int, str] = {}
    missing = set(range(1, size))
    while missing:
        for rank in sorted(missing):
            word = _read(store, f"word/{rank}")
            if word and word != told.get(rank):
                told[rank] = word
                store.set(f"welcome/{rank}", f"{word} {name}")
            if _read(store, f"content/{rank}") == name:
                missing.discard(rank)
        if missing:
            _pause(deadline, f"rank {', '.join(map(str, sorted(missing)))}")
    return name


def _be_welcomed(store: Any, rank: int, mine: str, deadline: float) -> str:
    while True:
        word, _, name = _read(store, f"welcome/{rank}").partition(" ")
        if word == mine:
            store.set(f"content/{rank}", name)
            return name
        _pause(deadline, "rank 0")


def _read(store: Any, key: str) -> str:
    # get() alone would wait for a key that is not there.
    return store.get(key).decode() if store.check([key]) else ""


def _pause(deadline: float, whom: str) -> None:
    from torch.distributed import DistStoreError

    if time.monotonic() > deadline:
        raise DistStoreError(
            f"init_process_group: waited in vain for {whom}; see whether all "
            "ranks were started, and reached init_process_group()"
        )
    time.sleep(_POLL_S)
