"""README.md, licences and citation say what is there."""

import hashlib
import re
import sys
import tomllib
from pathlib import Path

import yaml

import npu_dispatch

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))
import tables
from pages import BLOCK

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text()
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)")


def rows(page: str, name: str) -> list[str]:
    """Return the first column of the table NAME of a page."""
    (block,) = (b[0] for b in BLOCK.finditer(page) if b[2] == name)
    return re.findall(r"^\| (?!case|---)(.+?) \|", block, re.M)


def test_links_of_the_front_page_lead_somewhere():
    gone = [link for link in LINK.findall(README) if not (ROOT / link).is_file()]

    assert gone == []


def test_the_index_leads_to_every_page():
    linked = set(LINK.findall((DOCS / "index.md").read_text()))
    pages = {path.name for path in DOCS.glob("*.md")} - {"index.md"}

    assert pages - linked == set()


def test_every_table_of_figures_stands_on_one_page_and_has_its_rows():
    pages = {name: (ROOT / name).read_text() for name in tables.PAGES}
    stands = [block[2] for page in pages.values() for block in BLOCK.finditer(page)]

    assert sorted(stands) == sorted([*tables.TABLES, *tables.WRITTEN])
    for page in pages.values():
        for block in BLOCK.finditer(page):
            if block[2] in tables.WRITTEN:
                continue
            words = [row.words for row in tables.TABLES[block[2]][1]]
            assert rows(page, block[2]) == words


def test_figures_within_sentences_are_those_of_the_table():
    named = list(tables.FIGURE.finditer(README))

    assert named
    for figure in named:
        bench, case, field, value = *figure.group(2, 3, 4), figure[0]
        (row,) = (
            row.words
            for row in tables.TABLES["front"][1]
            if (row.bench, row.cells) == (bench, ((case, field),))
        )
        (line,) = (one for one in README.splitlines() if one.startswith(f"| {row} |"))
        assert re.sub(r"<!--.*?-->", "", value) == line.split("|")[2].split()[0]


def test_the_citation_names_the_version_of_the_package():
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())

    # The built one also says for which torch.
    assert citation["version"] == npu_dispatch.__version__
    assert package["license"].startswith(citation["license"])  # our own part
    assert citation["title"] == package["name"]


FOLDER = ROOT / "npu_dispatch/observe/serve/page/uPlot"
LIST = (ROOT / "THIRD_PARTY.md").read_text()


def test_the_list_has_the_sums_of_the_files_that_are_there():
    listed = dict(re.findall(r"^\| `(\S+)` \| `([0-9a-f]{64})` \|$", LIST, re.M))

    sums = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in FOLDER.iterdir()
    }
    assert listed == sums


def test_the_list_says_the_version_that_the_file_says():
    (version,) = re.findall(r"^## uPlot (\S+)$", LIST, re.M)

    assert f"(v{version})" in (FOLDER / "uPlot.iife.min.js").read_text()[:200]
    assert "Leon Sorokin" in (FOLDER / "LICENSE").read_text()


def test_files_of_others_are_nowhere_else():
    minified = set((ROOT / "npu_dispatch").rglob("*.min.*"))

    assert {path.parent for path in minified} == {FOLDER}
