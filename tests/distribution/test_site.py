"""The site from docs/: every page is built, and every link leads somewhere."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
NAVIGATION = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.M | re.S)
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)[^)]*\)")


def build(site: Path, *options: str | Path) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "mkdocs", "build", "--strict")
    return subprocess.run(
        [*command, "-d", str(site), *map(str, options)],
        cwd=ROOT,
        text=True,
        capture_output=True,
    )


def pages(entry: object) -> Iterator[str]:
    """Yield the pages of a navigation, those that are made with the site among them."""
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict | list):
        for below in entry.values() if isinstance(entry, dict) else entry:
            yield from pages(below)


def test_each_link_of_the_documents_leads_to_a_page_or_a_file():
    docs = ROOT / "docs"
    made = {docs / page for page in pages(NAVIGATION)}  # some with the site
    lost = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in sorted(docs.rglob("*.md"))
        for target in LINK.findall(CODE.sub("", page.read_text()))
        if (to := (page.parent / target).resolve()) not in made and not to.exists()
    ]

    assert lost == []


@pytest.mark.nightly  # the whole site; links to anchors are followed, too
def test_every_page_is_built_and_found_by_the_search(tmp_path):
    built = build(tmp_path / "site")

    assert built.returncode == 0, built.stderr
    index = (tmp_path / "site/search/search_index.json").read_text()
    for page in pages(NAVIGATION):
        place = Path(page).with_suffix("")
        folder = tmp_path / "site" / (place.parent if place.name == "index" else place)
        assert (folder / "index.html").is_file()
        if place.name != "index":
            assert f'"{place}/' in index


def test_a_link_to_nowhere_fails_the_build(tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("[gone](gone.md)\n")
    config = re.sub(r"(?m)^hooks:.*\n", "", (ROOT / "mkdocs.yml").read_text())
    (tmp_path / "mkdocs.yml").write_text(config.partition("nav:")[0])

    built = build(tmp_path / "site", "-f", tmp_path / "mkdocs.yml")

    assert built.returncode != 0
    assert "gone.md" in built.stderr
