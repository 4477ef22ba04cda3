"""A machine whose cores have sensors. Few virtual machines have any."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from npu_dispatch.npu.runtime import load


class Sensors:
    """61 degrees, 2400 MHz, and a meter of the energy that the processors use."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder, self._patch = folder, patch
        for meter in ("intel-rapl:0", "intel-rapl:0:0", "intel-rapl"):
            (folder / meter).mkdir()
            (folder / meter / "energy_uj").write_text("7")
        cores = [SimpleNamespace(current=degrees) for degrees in (55.0, 61.2)]
        self._set(_ENERGY=folder)
        self._set_of_psutil({"coretemp": cores, "nvme": cores}, [2400.0, 800.0])

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            self._patch.setattr(load, name, value)

    def _set_of_psutil(self, degrees: object, megahertz: list[float]) -> None:
        cores = [SimpleNamespace(current=one) for one in megahertz]
        self._patch.setattr(load.psutil, "sensors_temperatures", lambda: degrees)
        self._patch.setattr(load.psutil, "cpu_freq", lambda percpu: cores)

    def use(self, *, joules: float) -> None:
        meter = self._folder / "intel-rapl:0" / "energy_uj"
        meter.write_text(str(int(meter.read_text()) + int(joules * 1e6)))

    def remove(self) -> None:
        self._set(_ENERGY=self._folder / "none")
        self._set_of_psutil({}, [])
