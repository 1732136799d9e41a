"""What probes make of what drivers, kernels and programs say; the answers are written after their documentation."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from exo.services.telemetry.commands import ask
from exo.services.telemetry.macmon_sample import parse_sample, read_gpu, read_power
from exo.services.telemetry.probes.disk import name_disks
from exo.services.telemetry.probes.machine import parse_cpu, parse_release, read_linux, read_mac
from exo.services.telemetry.probes.memory import read_memory
from exo.services.telemetry.probes.nvidia import NvidiaProbe
from exo.services.telemetry.probes.power import PowerProbe, read_temperature
from exo.services.telemetry.probes.pressure import parse_stalls, read_pressure
from exo.streams.telemetry import Accelerator, PowerGauge
from support.recordings import MACMON_LINE, answer_from

# macmon.


def test_a_line_of_macmon_becomes_gauges() -> None:
    sample = parse_sample(MACMON_LINE)
    assert sample is not None
    (device,) = read_gpu(sample).devices
    assert device == Accelerator(name="Apple GPU", utilization=0.25, power=4.2, temperature=36.5)
    assert read_power(sample) == PowerGauge(system=21.5, package=9.75, temperature=43.25)
    memory = read_memory((), macmon=sample.memory)
    assert (memory.total, memory.available) == (25_769_803_776, 4_784_324_608)
    assert (memory.swap_total, memory.swap_available) == (4_294_967_296, 1_692_532_736)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"thread 'main' panicked at src/sources.rs:394:41",
        b'{"memory": {"ram_total": 0, "ram_usage": 0}}',
        b'{"memory": {"ram_total": 8, "ram_usage": 9}}',
        b'{"memory": {"ram_total": 8, "ram_usage": 4}, "sys_power": -1}',
        b'{"memory": {"ram_total": 8, "ram_usage": 4}, "gpu_usage": [1]}',
        b"\xff\xfe",
    ],
)
def test_a_line_that_is_no_sample_is_none(line: bytes) -> None:
    assert parse_sample(line) is None


def test_a_mac_without_a_power_sensor_says_nothing_of_power() -> None:
    sample = parse_sample(b'{"memory": {"ram_total": 8, "ram_usage": 4}, "cpu_usage_pct": 3, "new": {}}')
    assert sample is not None
    assert read_power(sample).system is None


# NVIDIA.


class FakeNvml:
    """The part of pynvml that is used: two GPUs, of which the second shares its memory with the processor."""

    NVML_TEMPERATURE_GPU = 0

    class NVMLError(Exception):
        pass

    def __init__(self, *, driver: bool = True, gpus: int = 2) -> None:
        self.driver = driver
        self.gpus = gpus
        self.opened = 0

    def nvmlInit(self) -> None:  # noqa: N802 - the driver's names
        self.opened += 1
        if not self.driver:
            raise self.NVMLError("driver not loaded")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self.gpus

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, handle: int) -> Any:  # noqa: N802
        return ["NVIDIA RTX 4090", b"NVIDIA GB10"][handle]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        if handle == 1:
            raise self.NVMLError("not supported")
        return SimpleNamespace(total=24_000_000_000, used=6_000_000_000, free=18_000_000_000)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(gpu=50, memory=10)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:  # noqa: N802
        return 180_500

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:  # noqa: N802
        return 61


def test_gpus_of_nvidia_are_read_as_far_as_they_tell() -> None:
    gauge = NvidiaProbe(FakeNvml()).read()
    assert gauge is not None
    first, second = gauge.devices
    assert first == Accelerator(
        name="NVIDIA RTX 4090",
        utilization=0.5,
        memory_total=24_000_000_000,
        memory_used=6_000_000_000,
        power=180.5,
        temperature=61,
    )
    assert (second.name, second.memory_total, second.power) == ("NVIDIA GB10", None, 180.5)


@pytest.mark.parametrize("nvml", [FakeNvml(driver=False), FakeNvml(gpus=0)])
def test_a_machine_without_nvidia_has_no_such_gauge(nvml: FakeNvml) -> None:
    assert NvidiaProbe(nvml).read() is None


def test_the_real_library_without_a_driver_is_quiet() -> None:
    NvidiaProbe().read()


# Pressure.

PSI = "some avg10={some} avg60=0.10 avg300=0.05 total=12\nfull avg10={full} avg60=0.00 avg300=0.00 total=3\n"


@pytest.mark.parametrize(
    ("text", "pressure"),
    [
        (PSI.format(some="0.00", full="0.00"), "normal"),
        (PSI.format(some="14.20", full="3.10"), "warning"),
        (PSI.format(some="60.00", full="22.50"), "critical"),
        ("", "unknown"),
    ],
)
def test_linux_tells_how_long_programs_wait_for_memory(text: str, pressure: str) -> None:
    assert parse_stalls(text) == pressure


def test_pressure_is_asked_of_the_system_that_this_is(tmp_path: Path) -> None:
    assert read_pressure(platform="linux", proc=tmp_path) == "unknown"
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure" / "memory").write_text(PSI.format(some="0.00", full="0.00"))
    assert read_pressure(platform="linux", proc=tmp_path) == "normal"
    assert read_pressure(platform="darwin", ask=answer_from({"sysctl": "2\n"})) == "warning"
    assert read_pressure(platform="darwin", ask=answer_from({})) == "unknown"


# Power.


def write_zone(root: Path, name: str, energy: int) -> None:
    zone = root / "class" / "powercap" / name
    zone.mkdir(parents=True, exist_ok=True)
    (zone / "energy_uj").write_text(f"{energy}\n")
    (zone / "max_energy_range_uj").write_text("1000000000\n")


def test_power_is_the_growth_of_the_energy_counters(tmp_path: Path) -> None:
    times = iter([10.0, 12.0, 14.0])
    probe = PowerProbe(sys=tmp_path, clock=lambda: next(times))
    write_zone(tmp_path, "intel-rapl:0", 999_000_000)
    write_zone(tmp_path, "intel-rapl:0:0", 5)
    assert probe.read() is not None
    # The counter starts again at 0 on the way.
    write_zone(tmp_path, "intel-rapl:0", 49_000_000)
    gauge = probe.read()
    assert gauge is not None
    assert gauge.package == pytest.approx(25)


def test_a_machine_without_sensors_has_no_power_gauge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exo.services.telemetry.probes.power.psutil", SimpleNamespace())
    assert PowerProbe(sys=tmp_path).read() is None


def test_the_processors_own_sensor_comes_first() -> None:
    def at(*degrees: float) -> list[Any]:
        return [SimpleNamespace(label="", current=value) for value in degrees]

    assert read_temperature({"nvme": at(70), "acpitz": at(25), "coretemp": at(51, 58)}) == 58
    assert read_temperature({"cpu_thermal": at(0.0), "acpitz": at(33)}) == 33
    assert read_temperature({"nvme": at(70)}) is None


# The machine.


def test_a_mac_is_described_by_macos() -> None:
    answers = {
        "sw_vers -productVersion": "26.2\n",
        "sw_vers -buildVersion": "25C56\n",
        "sysctl -n hw.model": "Mac15,14\n",
        "sysctl -n machdep.cpu.brand_string": "Apple M3 Ultra\n",
    }
    machine = read_mac(answer_from(answers))
    assert (machine.operating_system, machine.os_version, machine.os_build) == ("macOS 26.2", "26.2", "25C56")
    assert (machine.machine, machine.chip) == ("Mac15,14", "Apple M3 Ultra")
    assert read_mac(answer_from({})).chip


def test_linux_is_described_by_its_files(tmp_path: Path) -> None:
    files = {
        "etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\n# comment\n',
        "proc/device-tree/model": "Raspberry Pi 5 Model B Rev 1.0\0",
        "proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD Ryzen 9\nprocessor\t: 1\nmodel name\t: other\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    machine = read_linux(tmp_path)
    assert machine.operating_system == "Debian GNU/Linux 12 (bookworm)"
    assert (machine.os_version, machine.machine, machine.chip) == (
        "12",
        "Raspberry Pi 5 Model B Rev 1.0",
        "AMD Ryzen 9",
    )
    assert machine.os_build


def test_a_processor_without_a_name_is_called_by_its_architecture(tmp_path: Path) -> None:
    assert parse_cpu("processor : 0\nBogoMIPS : 50.00\n") == ""
    assert parse_cpu("Hardware : BCM2835\n") == "BCM2835"
    assert parse_release("") == {}
    assert read_linux(tmp_path).chip


# Disks and programs.


def test_each_directory_of_models_has_a_gauge_of_its_own() -> None:
    assert name_disks([Path("/a"), Path("/b")]) == {"disk": Path("/a"), "disk-2": Path("/b")}


def test_a_program_that_is_missing_or_fails_says_nothing() -> None:
    assert ask("no-such-program-on-this-machine") == ""
    assert ask("false") == ""
    assert ask("echo", "hello") == "hello\n"
