"""What the runners did since the last reading, from the counts in their signs of life."""

from collections.abc import Mapping

from exo.streams.ids import RunnerId
from exo.streams.pipe import Beat
from exo.streams.telemetry import ThroughputGauge


class ThroughputProbe:
    """Compares counts; a runner that was restarted counts from zero again."""

    def __init__(self) -> None:
        self._before: dict[RunnerId, Beat] = {}

    def read(self, beats: Mapping[RunnerId, Beat], *, seconds: float) -> ThroughputGauge:
        """Give tokens per second over the last `seconds`."""
        generated = prompt = 0
        for runner, beat in beats.items():
            before = self._before.get(runner)
            restarted = before is None or before.generated_tokens > beat.generated_tokens
            generated += beat.generated_tokens - (0 if restarted or before is None else before.generated_tokens)
            prompt += beat.prompt_tokens - (0 if restarted or before is None else before.prompt_tokens)
        self._before = dict(beats)
        return ThroughputGauge(
            generated_tokens_per_second=generated / seconds if seconds > 0 else 0,
            prompt_tokens_per_second=prompt / seconds if seconds > 0 else 0,
            active_tasks=sum(beat.active + beat.queued for beat in beats.values()),
        )
