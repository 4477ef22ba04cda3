"""What searches leave: one report of one shape, findings as files, a last line."""

import json

from tests.search.report import Report


def test_a_finding_is_a_file_and_makes_the_status_1(tmp_path, capsys):
    report = Report("toy", seed=7, path=tmp_path / "toy.json", folder=tmp_path / "all")
    report.counts = {"tried": 4000, "of them: right": 3999}
    report.told = ("tried",)
    assert report.end() == 0

    path = report.find("values of mul", "why\n", again="again FILE", suffix=".py")
    assert report.end() == 1

    assert path.read_text() == "why\n" and path.name.startswith("values_of_mul_")
    whole = json.loads((tmp_path / "toy.json").read_text())
    assert whole["counts"] == report.counts and whole["seed"] == 7
    again = f"again {path}"
    assert whole["findings"] == [
        {"what": "values of mul", "again": again, "file": str(path)}
    ]
    assert whole["summary"] == "tried: 4,000, findings: 1"
    shown = capsys.readouterr().out
    assert again in shown and "| of them: right | 3,999 |" in shown
    assert shown.splitlines()[-1] == whole["summary"]
