"""The race sanitizer's reports as JSON, and as SARIF for code hosts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from npu_dispatch.sanitizer.reports import KINDS, Frame, Report

__all__ = ["to_json", "to_sarif"]


def to_json(reports: Iterable[Report]) -> str:
    """Return a JSON list with one object per report."""
    return json.dumps([asdict(report) for report in reports], indent=2)


def to_sarif(reports: Iterable[Report]) -> str:
    """Return a SARIF 2.1.0 log, as code hosts show it next to the source."""
    results = [_sarif_result(report) for report in reports]
    rules = [
        {"id": kind, "shortDescription": {"text": text}} for kind, text in KINDS.items()
    ]
    driver = {"name": "npu_dispatch sanitizer", "rules": rules}
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(log, indent=2)


def _sarif_result(report: Report) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": report.kind,
        "level": "error",
        "message": {"text": f"{report.edge}. {report.suggestion}"},
        "occurrenceCount": report.count,
        "properties": {"pid": report.pid, "rank": report.rank},
    }
    if report.second.where:
        result["locations"] = [_sarif_location(report.second.where)]
    related = [
        (report.first.where, f"first: {report.first.op}"),
        (report.allocation[0] if report.allocation else None, "allocated"),
    ]
    result["relatedLocations"] = [
        {**_sarif_location(frame), "message": {"text": text}}
        for frame, text in related
        if frame
    ]
    return result


def _sarif_location(frame: Frame) -> dict[str, Any]:
    return {
        "physicalLocation": {
            "artifactLocation": _place_of(Path(frame.file)),
            "region": {"startLine": max(1, frame.line)},
        }
    }


def _place_of(file: Path) -> dict[str, str]:
    """Return where a file is: below the current folder, as code hosts know it."""
    here = Path.cwd()
    if file.is_absolute() and not file.is_relative_to(here):
        return {"uri": file.as_uri()}
    below = file.relative_to(here) if file.is_absolute() else file
    return {"uri": quote(below.as_posix()), "uriBaseId": "%SRCROOT%"}
