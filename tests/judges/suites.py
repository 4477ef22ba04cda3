"""The suites of others: where each comes from, and how it is run on a device."""

import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.judges.shards import Shard
from tests.search.report import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import libraries

HERE = Path(__file__).resolve().parent
OUT = ROOT / "out" / "judges"
VENV = OUT / "venv"
PYTHON = VENV / "bin" / "python"
DEVICES = "2"
DEBIAN_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


@dataclass(frozen=True)
class Suite:
    """`prepare` installs it; `shards` names what to run on "npu" or "cpu".

    `on_cpu` gives the name that a test has when it is run on cpu, or "" for a test
    that has no business there.
    """

    name: str
    version: str
    source: str
    prepare: Callable[[], None]
    shards: Callable[[str], list[Shard]]
    on_cpu: Callable[[str], str]


def _pytest_ini() -> str:
    """Return an empty configuration: the suite's tests do not obey our own."""
    path = OUT / "pytest.ini"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[pytest]\n")
    return str(path)


CTS_VERSION = "0.4.1"
# It has no contract for dtypes of a torch that is newer.
CTS_TORCH = "2.12.1"
# Its tests want the allocator that looks for overruns, the others the usual one.
GUARDED = "memory/test_guard_alloc.py"
CTS_PARTS = (
    *(f"opinfo/test_opinfo_{what}.py" for what in ("forward", "backward", "errors")),
    *("operators", "training", "compiler", "device_api", "autograd"),
    *("memory", GUARDED, "dtypes", "strides", "workloads", "rng", "serialization"),
    *("errors", "stress", "multi_device"),
    *(
        f"generated/test_{what}.py"
        for what in (
            *("autograd_backward_variants", "factories", "foreach_fused"),
            *("functional_variants", "inplace_variants", "layout_storage_variants"),
            *("oracle_surfaces", "out_variants", "rng_variants", "view_aliases"),
        )
    ),
)


def _prepare_cts() -> None:
    needs = ("psutil", "numpy", "expecttest", "mpmath<2", "pytest")
    libraries.install(needs, VENV)
    libraries.install([f"torchcts=={CTS_VERSION}"], VENV, alone=True)


def _cts_shards(device: str) -> list[Shard]:
    (packages,) = VENV.glob("lib/python3*/site-packages")
    shards = []
    for name in CTS_PARTS:
        folder = OUT / "torchcts" / f"{device}-{Path(name).stem}"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / "manifest.py", folder)
        arguments = ("-c", _pytest_ini(), "--rootdir", str(packages))
        arguments += ("--device", device, "--level", "8", "--non-interactive")
        arguments += ("-p", "quicker", "--npu-clear-errors")
        arguments += (str(packages / "torchcts" / name),)
        env = {"JUDGES_SAID": CTS_TORCH, "NPU_DISPATCH_DEVICES": DEVICES}
        if name == GUARDED:
            env["PYTORCH_NPU_ALLOC_CONF"] = "backend:guard"
        else:
            # The suite's own hook overrides --ignore.
            arguments += ("--deselect", f"torchcts/{GUARDED}")
        shards.append(Shard(f"torchcts {Path(name).stem}", arguments, folder, env))
    return shards


def _for_cpu(test: str) -> str:
    """Return the test's name with cpu for npu; "inputs" has no device's name."""
    test = re.sub("PRIVATEUSE1|NPU", "CPU", test)
    return re.sub("privateuse1|(?<![a-z])npu(?![a-z])", "cpu", test)


def _cts_on_cpu(test: str) -> str:
    # On cpu these take all memory of the machine.
    return "" if "torchcts/memory/" in test else _for_cpu(test)


def _debian_archive() -> str:
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


def debian_source(package: str, release: str, version: str, folder: Path) -> Path:
    """Download and unpack the upstream part of a source package; return its root.

    Its release of Debian need not be this machine's.
    """
    root = folder / f"{package}-{version}"
    if root.exists():
        return root
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / "apt" / name).mkdir(parents=True, exist_ok=True)
    listed = folder / "apt" / "sources.list"
    listed.write_text(
        f"deb-src [signed-by={DEBIAN_KEYS}] {_debian_archive()} {release} main\n"
    )
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


# The newest sources of torch that a package registry has whole.
TORCH_TESTS = "2.6.0+dfsg-7"
TORCH_FILES = (
    *("test_view_ops", "test_shape_ops", "test_reductions", "test_torch"),
    *("test_foreach", "test_indexing", "test_autograd", "test_optim"),
    *("test_modules", "test_sort_and_select", "test_scatter_gather_ops"),
    *("test_type_promotion", "test_tensor_creation_ops", "test_complex"),
    *("test_segment_reductions", "test_masked", "test_linalg", "test_nn"),
    *("test_binary_ufuncs", "test_unary_ufuncs", "test_spectral_ops"),
    *("nn/test_convolution", "nn/test_dropout", "nn/test_embedding"),
    *("nn/test_multihead_attention", "nn/test_pooling", "nn/test_packed_sequence"),
    *("nn/test_init", "nn/test_lazy_modules", "nn/test_parametrization"),
    *("nn/test_pruning", "nn/test_module_hooks", "nn/test_load_state_dict"),
)


def _torch_tests() -> Path:
    return debian_source("pytorch", "trixie", TORCH_TESTS, OUT) / "test"


def _prepare_torch() -> None:
    libraries.install(("expecttest", "hypothesis", "scipy", "numpy", "pytest"), VENV)
    _torch_tests()


def _torch_shards(device: str) -> list[Shard]:
    tests = _torch_tests()
    env = {
        "PYTORCH_TESTING_DEVICE_ONLY_FOR": "privateuse1" if device == "npu" else "cpu",
        "NPU_DISPATCH_DEVICES": DEVICES,
    }
    arguments = ("-c", _pytest_ini(), "--rootdir", str(tests), "--noconftest")
    arguments += ("-p", "older", "--npu-clear-errors")
    return [
        Shard(f"torch {name}", (*arguments, f"{name}.py"), tests, env)
        for name in TORCH_FILES
    ]


SUITES = (
    Suite(
        "TorchCTS",
        CTS_VERSION,
        "PyPI, `torchcts`",
        _prepare_cts,
        _cts_shards,
        _cts_on_cpu,
    ),
    Suite(
        "PyTorch's device-generic tests",
        TORCH_TESTS,
        "Debian, source package `pytorch`",
        _prepare_torch,
        _torch_shards,
        _for_cpu,
    ),
)
