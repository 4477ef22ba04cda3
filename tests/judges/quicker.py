"""A pytest plugin: TorchCTS works out once what it looks for at each call.

It goes through the metadata of all operators each time that it asks which versions of
torch they are of, which is nine tenths of what its generated tests take.
"""

from typing import Any

from torchcts import op_metadata

_look = op_metadata._validation_metadata
_found: list[tuple[Any, Any]] = []  # a metadata, by identity, and its versions


def _versions(metadata: Any) -> Any:
    for known, versions in _found:
        if known is metadata:
            return versions
    _found.append((metadata, _look(metadata)))
    return _found[-1][1]


op_metadata._validation_metadata = _versions
