"""A sign of life each second from a thread of its own, so that a slow step is told from a dead process."""

import threading

from exo.runners.admission import Admission
from exo.runners.outbox import Outbox
from exo.runners.runner import Runner
from exo.streams.pipe import HEARTBEAT, Beat


class Heartbeat:
    """Beats from `start` until the process ends; the counters stand still until `watch` is called."""

    def __init__(self, outbox: Outbox, admission: Admission) -> None:
        self._outbox = outbox
        self._admission = admission
        self._runner: Runner | None = None

    def start(self) -> None:
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()

    def watch(self, runner: Runner) -> None:
        self._runner = runner

    def _beat(self) -> None:
        pause = threading.Event()
        while not pause.wait(HEARTBEAT):
            self._outbox.send(self._measure())

    def _measure(self) -> Beat:
        runner = self._runner
        return Beat(
            steps=runner.steps if runner else 0,
            active=self._admission.running,
            queued=self._admission.queued,
            generated_tokens=runner.generated_tokens if runner else 0,
            prompt_tokens=runner.prompt_tokens if runner else 0,
        )
