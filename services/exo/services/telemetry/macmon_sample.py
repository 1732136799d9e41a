"""What a line of `macmon pipe` says. Pure. The format is macmon's own, as its README documents it."""

import math

import msgspec

from exo.streams.telemetry import Accelerator, GpuGauge, PowerGauge

_Usage = tuple[float, float]
"""Frequency in MHz, use from 0 to 1."""


class Temperature(msgspec.Struct, frozen=True):
    """Degrees Celsius."""

    cpu_temp_avg: float = 0
    gpu_temp_avg: float = 0


class Memory(msgspec.Struct, frozen=True):
    """Bytes."""

    ram_total: int
    ram_usage: int
    swap_total: int = 0
    swap_usage: int = 0


class MacmonSample(msgspec.Struct, frozen=True, kw_only=True):
    """One line. Power in watts; fields that other versions add are ignored."""

    memory: Memory
    temp: Temperature = Temperature()
    gpu_usage: _Usage = (0, 0)
    gpu_power: float = 0
    all_power: float = 0
    sys_power: float = 0


_decoder = msgspec.json.Decoder(MacmonSample)


def parse_sample(line: bytes) -> MacmonSample | None:
    """Read a line; None when it is no sample, or one that cannot be true."""
    try:
        sample = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    numbers = (sample.all_power, sample.sys_power, sample.gpu_power, *sample.gpu_usage)
    whole = all(math.isfinite(number) and number >= 0 for number in numbers)
    return sample if whole and 0 <= sample.memory.ram_usage <= sample.memory.ram_total != 0 else None


def read_gpu(sample: MacmonSample) -> GpuGauge:
    """Give the GPU's share; its memory is main memory and not told apart."""
    device = Accelerator(
        name="Apple GPU",
        utilization=min(sample.gpu_usage[1], 1),
        power=sample.gpu_power,
        temperature=sample.temp.gpu_temp_avg or None,
    )
    return GpuGauge(devices=(device,))


def read_power(sample: MacmonSample) -> PowerGauge:
    """Give what the machine and its chip draw. A Mac without that sensor says 0 for the machine."""
    return PowerGauge(
        system=sample.sys_power or None,
        package=sample.all_power,
        temperature=sample.temp.cpu_temp_avg or None,
    )
