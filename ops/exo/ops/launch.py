"""The models that `exo up` was told to serve, brought up one after the other beside a running node.

Called by `exo.ops.up` with the node's own address. A model that fails is logged and leaves the node
up: the API that says why must answer.
"""

from collections.abc import Sequence

import structlog

from exo.ops.client import NodeClient
from exo.ops.errors import CommandError
from exo.ops.placing import ensure_ready
from exo.ops.terminal import ProgressLine

log = structlog.get_logger(__name__)


async def launch_models(url: str, models: Sequence[str]) -> list[str]:
    """Have each model serve; gives the ids of those that do, in order."""
    ready: list[str] = []
    async with NodeClient(url) as client:
        for name in dict.fromkeys(models):
            try:
                with ProgressLine() as line:
                    model = await ensure_ready(client, name, show=line.show)
            except CommandError as error:
                log.error("a model cannot be served", model=name, code=error.code, reason=error.message)  # noqa: TRY400 - the reason is whole
            else:
                ready.append(model)
    return ready
