"""A PyTorch device, `npu`, whose operators launch asynchronously.

`import torch` registers the device through its entry point, and so does
register(). Importing this package loads no torch, so a process that only reads
npu_dispatch.observe.segment stays free of it. Where torch is loaded already, importing
this package, or npu_dispatch.npu, registers the device at once. NPU_AUTOLOAD=0 leaves
all of it to register().
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

# Each function imports what it needs: whoever only reads counters, or asks for help,
# is not to wait for the rest.
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    import torch

    from npu_dispatch import npu as npu
    from npu_dispatch.whole_step.step import CompiledStep

__all__ = ["enable_npu_sanitizer", "get_include", "is_registered", "register"]
__version__ = "0.1.0"

_torch_asked = False  # for the device, in the middle of importing npu_dispatch.npu
__all__ += ["compile_step", "install_torch_npu_alias", "redirect_cuda"]

# When something imports these, our module registers with it, or we say what is missing.
# Lightning's packages, under each of their names, import the last one first.
_PARTS = {
    "torch._dynamo": "inductor.dynamo",
    "torch.distributed.distributed_c10d": "distributed._registration",
    "lightning_utilities": "integrations.lightning",
}


def is_registered() -> bool:
    """Return whether this process's `npu` device is ours."""
    module = sys.modules.get("torch.npu")
    return module is not None and module.__name__ == f"{__name__}.npu"


def register() -> None:
    """Make `torch.device("npu")` and `torch.npu` work. A second call does nothing.

    Where the real torch_npu is installed, it logs a message and leaves the device
    to that package, because torch has room for one such device.
    """
    if is_registered():
        return
    if _real_torch_npu():
        _warn(
            "torch_npu is installed: leaving the device 'npu' to it. "
            "Uninstall torch_npu to use npu_dispatch."
        )
        return
    import torch

    if is_registered():  # by torch's own import, through _autoload
        return
    if _npu_is_being_imported():
        global _torch_asked
        _torch_asked = True
        return
    from functools import partial

    from npu_dispatch import import_alias
    from npu_dispatch.config import Config, bad_values

    config = Config.read()
    if config.emulated_spec is not None:
        _take_spec(config.emulated_spec)
    _check_torch(torch.__version__)
    from torch.utils import backend_registration

    from npu_dispatch import _C

    backend_registration.rename_privateuse1_backend("npu")
    from npu_dispatch import npu
    from npu_dispatch.npu import patches
    from npu_dispatch.npu.runtime.start import finish_at_exit

    torch._register_device_module("npu", npu)  # type: ignore[no-untyped-call]
    # `import torch.npu.amp` would load that file again, as another module.
    import_alias.add("torch.npu", f"{__name__}.npu")
    backend_registration.generate_methods_for_privateuse1_backend(for_storage=True)
    for folder, packages in reversed(npu.frame_origins()):
        _C.add_origin(folder, packages)
    _C.register()
    patches.apply()
    npu._compile_with(_register_with_inductor)
    for imported in _PARTS:
        import_alias.after_import(imported, partial(_register_with, imported))
    finish_at_exit()
    for text in bad_values():
        _warn(text)
    if config.watchdog_seconds:
        _start_watchdog(config.watchdog_seconds)
    if config.sanitizer is not None:
        npu._sanitizer.enable_as_configured(config)
    if config.torch_npu_alias:
        install_torch_npu_alias()
    if config.cuda:
        redirect_cuda()


def _take_spec(name: str) -> None:
    """Tell the driver what device to emulate, here and in child processes."""
    from npu_dispatch.config import set_for_children
    from npu_dispatch.plan import spec

    set_for_children("NPU_EMULATED", spec.load(name).driver_text())


def _start_watchdog(seconds: float) -> None:
    import os

    from npu_dispatch.observe.judge.watchdog import start_watchdog

    try:
        start_watchdog(os.getpid(), seconds)
    except (OSError, TypeError) as error:  # it cannot fork; sys.executable is None
        _warn(f"NPU_DISPATCH_WATCHDOG: there is no watchdog: {error}")


def _register_with(imported: str) -> None:
    import importlib

    try:
        importlib.import_module(f"{__name__}.{_PARTS[imported]}").register()
    except Exception as error:
        # Nobody's import of torch fails because of us.
        _warn(f"{imported} does not know the device 'npu': {error}")


def _register_with_inductor() -> Any:
    from npu_dispatch import inductor

    return inductor.register()


def _real_torch_npu() -> bool:
    """Return whether the vendor's package is installed."""
    import importlib.util

    from npu_dispatch import import_alias

    if import_alias.is_alias("torch_npu"):
        return False
    try:
        return importlib.util.find_spec("torch_npu") is not None
    except ValueError:  # a module without a spec, which somebody made by hand
        return True


def install_torch_npu_alias() -> None:
    """Make `import torch_npu` give this device under the vendor's names.

    This is for programs and libraries that look for torch_npu. It raises
    RuntimeError where the real one is installed. See
    npu_dispatch.integrations.torch_npu.
    """
    register()
    if _real_torch_npu():
        raise RuntimeError(
            "torch_npu is installed: `import torch_npu` is to give that one. "
            "Uninstall it, or do not ask for the alias "
            "(NPU_DISPATCH_TORCH_NPU_ALIAS)."
        )
    from npu_dispatch import import_alias
    from npu_dispatch.versions import TORCH_NPU_VERSION

    ours = f"{__name__}.integrations.torch_npu"
    import_alias.add("torch_npu", ours, TORCH_NPU_VERSION)
    import_alias.add("torch_npu.npu", f"{__name__}.npu")
    import_alias.add("torch_npu.amp", f"{__name__}.npu.amp")
    import torch

    # `accelerate env` prints it: torch_npu sets it in torch itself.
    torch.version.cann = ""  # type: ignore[attr-defined]


def redirect_cuda() -> None:
    """Let torch.cuda mean torch.npu, and device "cuda" mean "npu", from now on.

    This is for programs written for CUDA, and cannot be undone. It raises
    RuntimeError where the device `npu` is not ours. See
    npu_dispatch.integrations.torch_npu.contrib.
    """
    register()
    if not is_registered():
        raise RuntimeError(
            "the device 'npu' is torch_npu's: use its own "
            "torch_npu.contrib.transfer_to_npu"
        )
    import importlib
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of just what was asked for
        importlib.import_module(
            f"{__name__}.integrations.torch_npu.contrib.transfer_to_npu"
        )


def get_include() -> str:
    """Return the folder of npu_dispatch.h, the C interface of a stream's queue."""
    from pathlib import Path

    return str(Path(__file__).parent / "include")


def enable_npu_sanitizer(mode: str = "raise", suppressions: Any = None) -> None:
    """Report accesses that nothing orders; see torch.npu._sanitizer."""
    from npu_dispatch.npu import _sanitizer

    register()
    _sanitizer.enable_npu_sanitizer(mode, suppressions)


def compile_step(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_fn: Callable[..., Any] | None = None,
    *,
    scheduler: Any = None,
    scaler: torch.amp.GradScaler | None = None,
    clip_grad_norm: float | None = None,
    clip_grad_value: float | None = None,
    accumulate: int = 1,
    autocast: torch.dtype | None = None,
    backend: str | Callable[..., Any] | None = None,
    dynamic: bool | None = None,
    options: dict[str, Any] | None = None,
    max_graphs: int = 16,
) -> CompiledStep:
    """Return a callable that takes a whole training step with a batch.

    `step(*inputs, target)` does what zero_grad, `loss_fn(model(*inputs), target)`,
    backward, clipping and `optimizer.step()` do. All of it is compiled as by
    torch.compile, captured in one graph, and replayed with the batch copied in. The
    call returns what loss_fn returned, detached: the loss, or a tuple, mapping or
    object that has the loss first or as `loss`. Without `loss_fn` the model gets all
    the arguments and returns that. Batches may be on the host. Gradients are None
    after a step.

    `scheduler`: its step() is called after each step of the optimizer. You may also
    call it yourself, because changed learning rates reach the graph. `scaler`: it
    scales the loss, unscales gradients and skips infinite ones.
    `clip_grad_norm`, `clip_grad_value`: the limits for the optimizer's parameters.
    `accumulate`: the optimizer steps at each n-th call, with the mean over n
    batches. `autocast`: the dtype that forward and loss run in. `backend`,
    `dynamic`, `options`: those of torch.compile. `backend="eager"` captures without
    compiling. By default the first ten replays are of two graphs in turn, one that
    "inductor" has compiled and one that is not compiled; the faster one stays, and is
    the result's `backend`. If Inductor cannot compile the step, "eager" is taken. As
    both draw other random numbers, name a backend for results that repeat with a seed;
    torch.use_deterministic_algorithms() takes "inductor".

    The first calls with batches of one shape run as the plain loop. Up to
    `max_graphs` shapes get a graph each, and these share memory; further shapes run as
    the plain loop, with a warning. When modules, parameters or hyperparameters change,
    the step is captured anew. A step that cannot be captured runs as the plain loop
    from then on, after one warning that says what stood in the way and where. Arguments
    that cannot be used raise TypeError or ValueError.
    """
    register()
    from npu_dispatch.whole_step.step import CompiledStep
    from npu_dispatch.whole_step.training import Training

    training = Training(
        model,
        optimizer,
        loss_fn,
        scheduler=scheduler,
        scaler=scaler,
        clip_grad_norm=clip_grad_norm,
        clip_grad_value=clip_grad_value,
        accumulate=accumulate,
        autocast=autocast,
        max_graphs=max_graphs,
    )
    return CompiledStep(training, backend=backend, dynamic=dynamic, options=options)


def _check_torch(running: str) -> None:
    from npu_dispatch.versions import TORCH_VERSION, fits, needed

    if fits(running):
        return
    from npu_dispatch.errors import TorchVersionError

    raise TorchVersionError(
        f"npu_dispatch was built for torch {TORCH_VERSION}, but torch {running} is "
        f'running. Install "{needed()}", or the npu_dispatch that is built for '
        "this torch."
    )


def _autoload() -> None:
    """Register the device when `import torch` calls this entry point; never raise."""
    try:
        _register_if_asked()
    except Exception as error:
        _warn(f"device 'npu' is not available: {error}")
        # So that an explicit `import npu_dispatch` tries again and raises.
        sys.modules.pop(__name__, None)


def _is_being_imported(name: str) -> bool:
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


def _npu_is_being_imported() -> bool:
    """Return whether `import npu_dispatch.npu` is what imports torch."""
    module = sys.modules.get(f"{__name__}.npu")
    return module is not None and not hasattr(module, "_is_whole")


def _register_where_torch_asked() -> None:
    """Catch up, at the end of npu_dispatch.npu, with torch's entry point."""
    if _torch_asked:
        register()


def _register_if_asked() -> None:
    from npu_dispatch.config import Config

    if Config.read().autoload:
        register()


def _warn(text: str) -> None:
    import logging

    logging.getLogger(__name__).warning("%s", text)


def _is_for_another_module() -> bool:
    """Return whether one of our modules, other than the device's, is asked for.

    Such an import needs no device. Python imports the package for it first, with the
    name that was asked for in a frame of importlib.
    """
    device = f"{__name__}.npu"
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            asked = str(frame.f_locals.get("name", ""))
            if asked.startswith(f"{__name__}."):
                return asked != device and not asked.startswith(f"{device}.")
        frame = frame.f_back
    return False


# In the middle of `import torch`, an exception here would break it: its last
# step, the call of _autoload, registers the device. Without torch there is
# nothing to register with, and nobody asked for torch.
if (
    "torch" in sys.modules
    and not _is_being_imported("torch")
    and not _is_for_another_module()
):
    _register_if_asked()
