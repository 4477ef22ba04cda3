from collections.abc import Callable, Iterator
from subprocess import PIPE
from typing import Any

import pytest
from interpreter import environment
from ranks import HEAD, make_ranks


@pytest.fixture
def ranks(python, tmp_path):
    return make_ranks(python, tmp_path)


@pytest.fixture
def going(python, tmp_path) -> Iterator[Callable[..., list[Any]]]:
    """going(code, size): processes of ranks that have printed "ready" and go on.

    `words` are further arguments of each; further names are variables.
    """
    started: list[Any] = []

    def start(code: str, size: int = 2, words: tuple[str, ...] = (), **variables: str):
        store = str(tmp_path / f"going{len(started)}")
        ranks = [
            python.start(
                *("-c", HEAD + code, str(rank), str(size), store, *words),
                env=environment(**variables),
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
            )
            for rank in range(size)
        ]
        started.extend(ranks)
        for process in ranks:
            assert process.stdout.readline() == "ready\n", process.stderr.read()
        return ranks

    yield start
    for process in started:
        process.kill()
        process.communicate()
