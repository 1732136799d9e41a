"""NVIDIA's GPUs through their driver's library. A machine without the driver has no such gauge, and no noise."""

from collections.abc import Callable
from typing import Any, TypeVar

import pynvml

from exo.streams.telemetry import Accelerator, GpuGauge

T = TypeVar("T")


class NvidiaProbe:
    """Opens the library at the first reading; `nvml` is the module, a double in tests."""

    def __init__(self, nvml: Any = pynvml) -> None:
        self._nvml = nvml
        self._handles: list[Any] | None = None

    def read(self) -> GpuGauge | None:
        """Give all GPUs; None when there is no driver, or no GPU."""
        if self._handles is None:
            self._handles = self._open()
        return GpuGauge(devices=tuple(self._read_device(handle) for handle in self._handles)) if self._handles else None

    def _open(self) -> list[Any]:
        nvml = self._nvml
        try:
            nvml.nvmlInit()
            return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        except nvml.NVMLError:
            return []

    def _read_device(self, handle: Any) -> Accelerator:
        nvml = self._nvml
        name = self._ask(lambda: nvml.nvmlDeviceGetName(handle))
        memory = self._ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        use = self._ask(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        power = self._ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        heat = self._ask(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        return Accelerator(
            # Older drivers answer in bytes.
            name=name.decode() if isinstance(name, bytes) else name or "NVIDIA GPU",
            utilization=None if use is None else use / 100,
            memory_total=None if memory is None else int(memory.total),
            memory_used=None if memory is None else int(memory.used),
            power=None if power is None else power / 1000,
            temperature=None if heat is None else float(heat),
        )

    def _ask(self, question: Callable[[], T]) -> T | None:
        """A GPU that shares its memory with the processor, for one, does not know how much it has."""
        try:
            return question()
        except self._nvml.NVMLError:
            return None
