"""One exporter per machine: its unit, container and Kubernetes objects."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml
from cloudcoil.models.prometheus_operator import v1 as operator
from interpreter import environment
from missing import need_tool
from own_mounts import in_own_mounts
from packaging.requirements import Requirement
from prometheus_server import exported
from schemas import lost

from npu_dispatch.observe.serve.command import serve

DAEMONS, MONITOR, RULE = yaml.safe_load_all(exported("kubernetes"))
UNIT = exported("systemd")
OPTIONS = {o: p for p in serve.params for o in p.opts}
# What the unit allows, as far as a test can: memory that was written to is never
# executed, and nothing in /dev/shm is changed.
HARDENED = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN = 65, 1
libc.prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0)
command = [sys.executable, "-m", "npu_dispatch", "serve", "--port=0"]
os.execv(sys.executable, command)
"""


def instructions(name: str) -> list[str]:
    text = exported("container").replace("\\\n", " ")
    return re.findall(rf"^{name} (.*)", text, re.M)


def container() -> dict[str, Any]:
    [found] = DAEMONS["spec"]["template"]["spec"]["containers"]
    return found  # type: ignore[no-any-return]


def model(kind: type[Any], given: dict[str, Any]) -> dict[str, Any]:
    made = kind.model_validate(given)
    return made.model_dump(mode="json", by_alias=True, exclude_unset=True)  # type: ignore[no-any-return]


def test_kubernetes_knows_every_field_of_the_daemon_set():
    for version in ("1.30", "1.35"):
        kubernetes_validate.validate(DAEMONS, version, strict=True)


def test_the_operator_knows_every_field_of_monitor_and_rules():
    assert lost(MONITOR, model(operator.PodMonitor, MONITOR)) == []
    assert lost(RULE, model(operator.PrometheusRule, RULE)) == []


def test_the_operators_rules_are_the_rules():
    assert RULE["spec"] == yaml.safe_load(exported("alerts"))


def test_the_monitor_finds_the_daemons_and_calls_them_as_prometheus_does():
    labels = DAEMONS["spec"]["template"]["metadata"]["labels"]
    [endpoint] = MONITOR["spec"]["podMetricsEndpoints"]
    [scrape] = yaml.safe_load(exported("scrape-config"))["scrape_configs"]
    named = {r["targetLabel"]: r.get("replacement") for r in endpoint["relabelings"]}

    assert labels.items() >= MONITOR["spec"]["selector"]["matchLabels"].items()
    assert labels.items() >= DAEMONS["spec"]["selector"]["matchLabels"].items()
    assert endpoint["port"] in {port["name"] for port in container()["ports"]}
    assert named["job"] == scrape["job_name"]
    assert endpoint["interval"] == scrape["scrape_interval"]


def test_all_of_them_run_the_same_command_with_options_that_it_has():
    [started] = re.findall("^ExecStart=(.*)", UNIT, re.M)
    program, *options = shlex.split(started)
    [entry] = map(json.loads, instructions("ENTRYPOINT"))
    assert [Path(program).name, *options] == entry
    assert entry == ["npu-dispatch", "serve", "--all-users"]

    every = [*options, *container()["args"]]

    assert {option for option in every if option.startswith("--")} <= OPTIONS.keys()


def test_they_agree_on_port_and_group():
    port = serve.params[[p.name for p in serve.params].index("port")].default
    pod = DAEMONS["spec"]["template"]["spec"]

    assert [str(port)] == instructions("EXPOSE")
    assert [port] == [p["containerPort"] for p in container()["ports"]]
    assert f"127.0.0.1:{port}" in UNIT
    assert instructions("USER") == ["{runAsUser}:{runAsGroup}".format(
        **pod["securityContext"])]  # fmt: skip


def test_variables_that_the_unit_names_are_those_of_serve():
    named = set(re.findall(r"NPU_DISPATCH_SERVE_(\w+)", UNIT))

    assert named
    assert named <= {str(p.name).upper() for p in serve.params}


def test_systemd_finds_nothing_wrong_with_the_unit_and_calls_it_ok(tmp_path: Path):
    tool = need_tool("systemd-analyze", remedy="apt-get install systemd")
    file = tmp_path / "npu-dispatch.service"
    file.write_text(UNIT)

    verified = subprocess.run(
        [tool, "verify", str(file)], capture_output=True, text=True
    )
    judged = subprocess.run(
        [tool, "security", "--offline=yes", "--threshold=18", str(file)],
        capture_output=True,
        text=True,
    )

    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")
    assert judged.returncode == 0, judged.stdout + judged.stderr


def test_the_service_runs_where_nothing_can_be_written_or_made_code(tmp_path: Path):
    still = "mount --bind /dev/shm /dev/shm; mount -o remount,bind,ro /dev/shm"
    with subprocess.Popen(
        [*in_own_mounts(still), sys.executable, "-c", HARDENED],
        env=environment(NPU_AUTOLOAD="0"),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    ) as service:
        assert service.stdout
        try:
            url = service.stdout.readline().strip()
            statuses = []
            for path in ("livez", "metrics", ""):
                with urllib.request.urlopen(f"{url}{path}") as answer:
                    statuses.append(answer.status)
        finally:
            service.terminate()

    assert statuses == [200, 200, 200]


def test_the_image_gets_what_the_package_needs_and_no_torch():
    [run] = instructions("RUN")
    [program] = re.findall(r"python -c '([^']*)'", run)

    printed = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout.splitlines()

    every = map(Requirement, importlib.metadata.requires("npu_dispatch") or ())
    needed = {r.name for r in every if r.marker is None}
    assert {Requirement(line).name for line in printed} == needed - {"torch"}
    assert {"click", "uvicorn"} <= needed
