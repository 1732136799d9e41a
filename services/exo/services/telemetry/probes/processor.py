"""How busy the processors of this machine are."""

import psutil

from exo.streams.telemetry import ProcessorGauge


class ProcessorProbe:
    """Measures from one reading to the next."""

    def __init__(self) -> None:
        self._cores = psutil.cpu_count() or 1
        # The first call only sets the mark to measure from.
        psutil.cpu_percent(interval=None)

    def read(self) -> ProcessorGauge:
        """Give the use since the last reading, from 0 to 1, and the load."""
        return ProcessorGauge(
            utilization=psutil.cpu_percent(interval=None) / 100, cores=self._cores, load=psutil.getloadavg()[0]
        )
