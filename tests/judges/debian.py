"""A source package of Debian, of a release that need not be this machine's."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


def _archive() -> str:
    """Return where this machine has Debian's packages from."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for uri in found.split():
        if not uri.rstrip("/").endswith("security"):
            return uri
    raise RuntimeError(
        "no Debian archive is known to apt here: run `apt-get update` on Debian, or "
        "leave out the suites that come from its source packages"
    )


def source(package: str, release: str, version: str, folder: Path) -> Path:
    """Download and unpack the upstream part of a source package; return its root."""
    root = folder / f"{package}-{version}"
    if root.exists():
        return root
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / "apt" / name).mkdir(parents=True, exist_ok=True)
    listed = folder / "apt" / "sources.list"
    listed.write_text(f"deb-src [signed-by={KEYS}] {_archive()} {release} main\n")
    options = [
        f"Dir::Etc::SourceList={listed}",
        "Dir::Etc::SourceParts=/dev/null",
        f"Dir::State::Lists={folder / 'apt' / 'lists'}",
        f"Dir::Cache={folder / 'apt' / 'cache'}",
        "APT::Sandbox::User=root",
    ]
    apt = ["apt-get", "-qq", *(word for option in options for word in ("-o", option))]
    subprocess.run([*apt, "update"], check=True)
    wanted = f"{package}={version}"
    subprocess.run(
        [*apt, "source", "--download-only", "--tar-only", wanted],
        cwd=folder,
        check=True,
    )
    upstream = version.rpartition("-")[0]
    (archive,) = folder.glob(f"{package}_{upstream}.orig.tar.*")
    partial = root.with_suffix(".partial")
    with tarfile.open(archive) as tar:
        tar.extractall(partial, filter="data")
    (unpacked,) = partial.iterdir()
    unpacked.rename(root)
    partial.rmdir()
    return root
