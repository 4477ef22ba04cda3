"""Named examples of a page of the documentation."""

import re
from pathlib import Path


def example(page: Path, name: str) -> str:
    """Return the code that follows the page's mark of that name."""
    pattern = rf"<!-- example: {name} -->\n```\w+\n(.*?)```"
    [text] = re.findall(pattern, page.read_text(), re.S)
    return text
