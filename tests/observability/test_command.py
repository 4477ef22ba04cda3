"""`npu-dispatch serve`: where its options come from, and which are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from npu_dispatch.observe.serve import server
from npu_dispatch.observe.serve.command import serve


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[object, ...]]]:
    """What the service would be started with, instead of starting it."""
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr(server, "run", lambda *given: calls.append(given))
    yield calls


def test_a_flag_comes_before_a_variable_before_the_file(started, tmp_path: Path):
    file = tmp_path / "serve.toml"
    file.write_text(
        "port = 1\ninterval = 2.0\nmax-clients = 3\nallow-host = ['a.example', 'b']\n"
    )
    done = CliRunner().invoke(
        serve,
        ["--config", str(file), "--port", "11"],
        env={
            "NPU_DISPATCH_SERVE_PORT": "21",
            "NPU_DISPATCH_SERVE_INTERVAL": "22",
        },
    )

    assert done.exit_code == 0, done.output
    [(config, host, port, unix, _)] = started
    assert (host, port, unix) == ("127.0.0.1", 11, None)
    assert (config.interval, config.max_clients) == (22.0, 3)
    assert config.hosts == ("127.0.0.1", "a.example", "b")
    assert config.admin_token is None


def test_what_a_file_or_an_option_should_not_say_is_refused(started, tmp_path: Path):
    file = tmp_path / "serve.toml"
    for text, words in (
        ("prot = 1", "unknown prot; expected some of"),
        ("port = 'x'", "'x' is not a valid integer"),
        ("port =", "Invalid value"),
        ("interval = 0", "0.0 is not in the range"),
        *(
            (f"allow-host = ['{name}']", "expected a name, *.NAME or *")
            for name in ("a*b", "*b.example")
        ),
    ):
        file.write_text(text)

        done = CliRunner().invoke(serve, ["--config", str(file)])

        assert done.exit_code == 2, text
        assert words in " ".join(done.output.split()), text
    assert started == []
