"""What the gateway counts for Prometheus, in a registry of its own.

Counters move when something ends, never per token; the state of the cluster is read at scrape time.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from exo.streams.chunks import Chunk, Done, Failed, Rejected
from exo.streams.state import State

_LATENCIES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


class Metrics:
    """The registry and everything that is counted in it."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.requests = Counter(
            "exo_http_requests", "HTTP requests answered.", ("method", "route", "status"), registry=self.registry
        )
        self.tokens = Counter("exo_tokens", "Tokens of answers that have ended.", ("kind",), registry=self.registry)
        self.answers = Counter("exo_answers", "Answers that have ended.", ("outcome",), registry=self.registry)
        self.first_chunk = Histogram(
            "exo_admission_seconds",
            "From the subscription to the first chunk of an answer.",
            buckets=_LATENCIES,
            registry=self.registry,
        )

    def count_answer(self, last: Chunk) -> None:
        """Count an answer by its last chunk."""
        if isinstance(last, Done):
            self.answers.labels(last.reason).inc()
            self.tokens.labels("prompt").inc(last.usage.prompt)
            self.tokens.labels("completion").inc(last.usage.completion)
            self.tokens.labels("cached").inc(last.usage.cached)
        elif isinstance(last, Failed | Rejected):
            self.answers.labels(last.code).inc()

    def render(self) -> bytes:
        """Give the text that Prometheus scrapes."""
        return generate_latest(self.registry)


class ClusterCollector(Collector):
    """Gauges that are read when somebody looks."""

    def __init__(self, *, state: Callable[[], State], relays: Callable[[], int], connected: Callable[[], bool]) -> None:
        self._state = state
        self._relays = relays
        self._connected = connected

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Give the gauges of this moment."""
        state = self._state()
        yield _gauge("exo_relays_open", "Answers on their way to clients.", self._relays())
        yield _gauge("exo_bus_connected", "1 while the message broker is reached.", int(self._connected()))
        yield _gauge("exo_events_applied", "Sequence of the last event folded into State.", state.applied)
        yield _gauge("exo_tasks_running", "Requests at work in the cluster.", len(state.tasks))
        yield _gauge("exo_nodes_online", "Nodes that are present.", sum(node.online for node in state.nodes.values()))
        runners = GaugeMetricFamily("exo_runners", "Runners by status.", labels=["status"])
        for status, count in Tally(_status_name(runner.status) for runner in state.runners.values()).items():
            runners.add_metric([status], count)
        yield runners


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


def _status_name(status: object) -> str:
    return type(status).__name__.lower()
