"""The dashboard, in Grafana's own types and in Prometheus."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from click.testing import CliRunner
from described_metrics import described
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_server import (
    Prometheus,
    alert_names,
    exported,
    promtool,
    promtool_case,
    serving,
)
from schemas import lost

from npu_dispatch.cli import main
from npu_dispatch.observe.serve.panels import VERDICTS

N = "npu_dispatch_"
BOARD = json.loads(exported("dashboards"))
PANELS = {p["title"]: p for p in BOARD["panels"] if p["type"] != "row"}
VARIABLES = [v for v in BOARD["templating"]["list"] if v["type"] == "query"]
WHO = {"host", "instance", "process", "rank"}


def queries(panel: dict[str, Any]) -> list[str]:
    return [target["expr"] for target in panel["targets"]]


def asked(query: str, over: str = "1m", **chosen: str) -> str:
    """Return the query as Grafana sends it; what is not chosen is All."""
    query = query.replace("$__rate_interval", over).replace("$__range", over)
    for variable in VARIABLES:
        name = variable["name"]
        query = query.replace(f"${name}", chosen.get(name, variable["allValue"]))
    return query


def test_grafanas_types_know_every_field_of_it():
    register_default_plugins()

    board = json.loads(JSONEncoder().encode(Dashboard.from_json(BOARD)))

    assert lost(BOARD, board) == []


def test_its_links_lead_to_the_page_and_to_the_documentation():
    done = CliRunner().invoke(
        main, ["export", "dashboards", "--docs-url=https://docs.example/npu/"]
    )

    links = [link["url"] for link in json.loads(done.output)["links"]]

    assert links[0] == "http://${host}:9401/"
    assert links[-1] == "https://docs.example/npu/observability.md"


def test_grafana_knows_every_unit():
    hints = units.__annotations__.values()
    known = {value for hint in hints for value in get_args(hint)}

    assert {p["fieldConfig"]["defaults"]["unit"] for p in PANELS.values()} <= known


def test_prometheus_understands_every_query(tmp_path: Path):
    expressions = [asked(q) for panel in PANELS.values() for q in queries(panel)]
    expressions += [asked(BOARD["annotations"]["list"][0]["expr"])]
    rules = [{"record": "r:r", "expr": expression} for expression in expressions]
    groups = {"groups": [{"name": "all", "rules": rules}]}

    promtool(tmp_path, "check", "rules", "--lint=none", given=groups)


def test_the_table_of_alerts_has_every_rule():
    [query] = queries(PANELS["Alerts that fire"])
    [names] = re.findall(r'alertname=~"([^"]*)"', query)

    assert set(names.split("|")) == alert_names()


def test_each_variable_offers_what_those_before_it_leave():
    names = [variable["name"] for variable in VARIABLES]

    used = [re.findall(r"\$(\w+)", v["query"]["query"]) for v in VARIABLES]

    assert names == ["cluster", "job", "host", "rank", "device", "stream"]
    assert used == [names[:i] for i in range(len(names))]


def test_a_line_of_a_process_is_of_one_process():
    for title, panel in PANELS.items():
        for target in panel["targets"]:
            if "{{process}}" not in target["legendFormat"]:
                continue
            legend = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            sums = re.findall(r"\b(?:sum|max|min|avg|count)\b(?: by \(([^)]*)\))?",
                              target["expr"])  # fmt: skip
            for labels in sums:
                assert set(labels.split(", ")) >= WHO, title
                assert labels, title
            assert legend >= WHO - {"instance"}, title


def test_two_hosts_with_two_ranks_are_four_lines_and_a_choice_leaves_fewer(
    tmp_path: Path,
):
    [query] = queries(PANELS["Launches"])
    series, rates = {}, {}
    for host in ("a", "b"):
        for rank in (0, 1):
            who = f'host="{host}",process="{rank}",rank="{rank}"'
            step = 15 * (1 + 2 * (host == "b") + rank)
            for stream in (0, 1):
                labels = f'{who},job_id="j",device="0",stream="{stream}"'
                series[f"{N}tasks_enqueued_total{{{labels}}}"] = f"0+{step}x60"
            rates[f"{{{who}}}"] = 2 * step / 15
    of_b = {labels: rate for labels, rate in rates.items() if '"b"' in labels}
    half = {labels: rate / 2 for labels, rate in rates.items()}

    cases = [
        promtool_case(asked(query, **chosen), series, {"10m": expected})
        for chosen, expected in (
            ({}, rates),
            ({"host": "b"}, of_b),
            ({"stream": "1"}, half),
            ({"job": "k"}, {}),
        )
    ]
    promtool(tmp_path, "test", "rules", given={"tests": cases})


def test_the_chart_of_verdicts_says_each_processs_verdict(tmp_path: Path):
    panel = PANELS["Verdict of each process"]
    [query] = queries(panel)
    [mapping] = panel["fieldConfig"]["defaults"]["mappings"]
    said = {shown["text"]: int(code) for code, shown in mapping["options"].items()}
    cases = []
    for kind in VERDICTS:
        series, expected = {}, {}
        for host, present in (("a", kind), ("b", "device-bound")):
            who = f'host="{host}",process="0"'
            for other in VERDICTS:
                name = f'{N}process_verdict{{{who},kind="{other}"}}'
                series[name] = f"{int(other == present)}x60"
            expected[f"{{{who}}}"] = said[present]
        cases.append(promtool_case(asked(query), series, {"10m": expected}))

    promtool(tmp_path, "test", "rules", given={"tests": cases})
    assert said.keys() == VERDICTS.keys()


def test_queries_name_only_metrics_that_exist():
    parts = {"histogram": ("_bucket", "_count", "_sum")}
    exist = {
        f"{N}{name}{part}"
        for name, (kind, _) in described().items()
        for part in parts.get(kind, ("",))
    }
    groups = yaml.safe_load(exported("alerts"))["groups"]
    rules = [rule["expr"] for group in groups for rule in group["rules"]]
    text = " ".join([*rules, json.dumps(BOARD)])

    named = set(re.findall(rf"\b{N}\w+", text))

    assert named - exist == set()


TRAINING = """
import os, sys, torch
import torch.distributed as dist
npu = torch.npu
dist.init_process_group("hccl", init_method=f"file://{os.getcwd()}/store{os.getpid()}",
                        rank=0, world_size=1)
model = torch.nn.Linear(8, 8).npu()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.ones(64, 8, device="npu")
other = npu.Stream()
graph = npu.NPUGraph()
with npu.graph(graph):
    y = x + 1
print("ready", flush=True)
while True:
    model(x).sum().backward()
    dist.all_reduce(model.weight.grad)
    optimizer.step()
    optimizer.zero_grad()
    graph.replay()
    other.wait_stream(npu.current_stream())
    with npu.stream(other):
        y.add_(1)
    npu.current_stream().wait_stream(other)
    y.sum().item()
"""


# What does not happen in it.
UNEVENTFUL = {
    "Alerts that fire",
    "Waits where a guard forbids them",
    "Races",
    "Callers that wait for a full queue",
    "Freed, but another stream may use it",
}


@pytest.mark.nightly
def test_every_panel_shows_something_for_a_live_process(
    trainer, child_environment, tmp_path
):
    program = trainer(TRAINING, RANK="0", WORLD_SIZE="1")
    assert program.line() == "ready"
    deadline = time.monotonic() + 100
    eventful = PANELS.keys() - UNEVENTFUL
    empty = {q: title for title in eventful for q in queries(PANELS[title])}
    with (
        serving(child_environment(NPU_AUTOLOAD="0"), "--ops=10") as (_, target),
        Prometheus(tmp_path, [target], exported("alerts")) as prometheus,
    ):
        while empty and time.monotonic() < deadline:
            time.sleep(1)  # Prometheus tells nobody when it has scraped
            empty = {q: t for q, t in empty.items() if not prometheus.ask(asked(q))}
        offered = {
            v["name"]: prometheus.ask(asked(_series_of(v))) for v in VARIABLES[1:]
        }

    assert set(empty.values()) == set()
    assert all(offered.values()), offered


def _series_of(variable: dict[str, Any]) -> str:
    found = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
    assert found
    return f"count by ({found[2]}) ({found[1]})"
