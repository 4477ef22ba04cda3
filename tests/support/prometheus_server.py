"""A real Prometheus over the service, with what the package ships for it."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from missing import need_tool

from npu_dispatch.cli import main


def exported(what: str) -> str:
    done = CliRunner().invoke(main, ["export", what])
    assert done.exit_code == 0, done.output
    return done.output


def alert_names() -> set[str]:
    groups = yaml.safe_load(exported("alerts"))["groups"]
    return {r["alert"] for g in groups for r in g["rules"] if "alert" in r}


def prometheus_tool(name: str) -> str:
    return need_tool(name, remedy="apt-get install prometheus")


def promtool(folder: Path, *command: str, given: Any) -> None:
    """Let promtool judge something that is given to it as a file of YAML."""
    file = folder / "given.yml"
    file.write_text(yaml.safe_dump(given))
    done = subprocess.run(
        [prometheus_tool("promtool"), *command, str(file)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def promtool_case(
    query: str,
    series: dict[str, str],
    expected: dict[str, dict[str, float]],
    name: str = "",
) -> dict[str, Any]:
    """Return a test of promtool's: what a query gives at times, by labels.

    `series` are their values every 15 s.
    """
    return {
        "interval": "15s",
        "name": name,
        "input_series": [{"series": s, "values": v} for s, v in series.items()],
        "promql_expr_test": [
            {
                "expr": query,
                "eval_time": at,
                "exp_samples": [
                    {"labels": labels, "value": value}
                    for labels, value in samples.items()
                ],
            }
            for at, samples in expected.items()
        ],
    }


def bearer(token: str) -> dict[str, str]:
    """Return the header that names a token."""
    return {"Authorization": f"Bearer {token}"}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@contextlib.contextmanager
def serving(
    env: dict[str, str], *options: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The service in a session of its own, and its HOST:PORT.

    Linux shares the cores between sessions, so that programs which the test starts
    take none from the service, as where it is deployed.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "npu_dispatch", "serve", "--port=0", *options],
        env=env,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as service:
        assert service.stdout is not None
        try:
            url = service.stdout.readline().strip()
            yield service, urllib.parse.urlsplit(url).netloc
        finally:
            service.terminate()


class Prometheus:
    """Scrapes and evaluates twice a second, or as it says where it is deployed."""

    def __init__(
        self, folder: Path, targets: list[str], rules: str, *, quick: bool = True
    ) -> None:
        program = prometheus_tool("prometheus")
        config = yaml.safe_load(exported("scrape-config"))
        [scrape] = config["scrape_configs"]
        if quick:
            scrape["scrape_interval"] = scrape["scrape_timeout"] = "500ms"
        del scrape["static_configs"]
        scrape["file_sd_configs"] = [{"files": [str(folder / "targets.json")]}]
        scrape["file_sd_configs"][0]["refresh_interval"] = "1s"
        config["global"] = {"evaluation_interval": "500ms" if quick else "15s"}
        config["rule_files"] = [str(folder / "alerts.yml")]
        self._targets: list[str] = []
        self._folder = folder
        self.add(*targets)
        (folder / "alerts.yml").write_text(rules)
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._port = free_port()
        self._process = subprocess.Popen(
            [
                program,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
            ],
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def __enter__(self) -> Prometheus:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def add(self, *targets: str) -> None:
        self._targets += targets
        part = self._folder / "targets.part"
        part.write_text(json.dumps([{"targets": sorted(set(self._targets))}]))
        part.rename(self._folder / "targets.json")

    def ask(self, query: str) -> list[Any]:
        """Return the query's series: none while it starts; a wrong query fails."""
        text = urllib.parse.urlencode({"query": query})
        found: list[Any] = self._get(f"query?{text}").get("result", [])
        return found

    def alerts(self) -> list[Any]:
        """Return the alerts that wait for their time or fire."""
        found: list[Any] = self._get("alerts").get("alerts", [])
        return found

    def _get(self, what: str) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self._port}/api/v1/{what}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                data: dict[str, Any] = json.load(answer)["data"]
                return data
        except urllib.error.HTTPError as error:
            pytest.fail(f"{what}: {error.read().decode()}")
        except OSError:
            return {}

    def firing(self, matching: str = "") -> set[str]:
        """Return the names of the alerts that fire."""
        alerts = self.ask(f'ALERTS{{alertstate="firing"{matching}}}')
        return {alert["metric"]["alertname"] for alert in alerts}
