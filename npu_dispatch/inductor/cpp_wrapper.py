"""What Inductor is told where it is to write C++ that calls the device."""

from __future__ import annotations

from typing import Any, NoReturn

from torch._inductor.codegen.wrapper import PythonWrapperCodegen

__all__ = ["NoCppWrapper"]


class NoCppWrapper(PythonWrapperCodegen):
    """Refuses cpp_wrapper=True and AOTInductor, of which torch writes none for npu."""

    @staticmethod
    def create(*_args: Any, **_options: Any) -> NoReturn:
        """Say what else there is; without this class, Inductor fails an assertion."""
        raise NotImplementedError(
            "cpp_wrapper=True and AOTInductor (aoti_compile_and_package, aot_compile) "
            "were asked for C++ that calls 'npu': torch writes it for cpu, cuda, xpu "
            "and mps alone. On npu, torch.compile without cpp_wrapper works, with "
            "mode='reduce-overhead' its steps are replayed by C++, and what "
            "torch.export returned runs as program.module(); or compile for cpu."
        )
