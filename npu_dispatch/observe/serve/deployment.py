"""Files for those who deploy the service; `npu-dispatch export` prints them."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from npu_dispatch.observe.serve.dashboard import dashboard

# What there is, and the file that it is in.
FILES = {
    "alerts": "alerts.yml",
    "container": "Containerfile",
    "dashboards": "",
    "kubernetes": "kubernetes.yml",
    "scrape-config": "scrape-config.yml",
    "systemd": "npu-dispatch.service",
}
_RULE = """\
---
# The rules of `npu-dispatch export alerts`.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: npu-dispatch
  labels: {app.kubernetes.io/name: npu-dispatch}
spec:
"""


def text_of(what: str, docs_url: str = "docs") -> str:
    """Return one of FILES; `docs_url` is where its readers find the documentation."""
    text = dashboard() if what == "dashboards" else _read(what)
    if what == "kubernetes":
        text += _RULE + textwrap.indent(_read("alerts"), "  ")
    command = Path(sys.executable).with_name("npu-dispatch")
    text = text.replace("ExecStart=COMMAND", f"ExecStart={command}")
    return text.replace("DOCS/", f"{docs_url.rstrip('/')}/")


def _read(what: str) -> str:
    return (Path(__file__).parent / "deploy" / FILES[what]).read_text()
