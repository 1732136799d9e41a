"""The models of this node: what is there, kept current in State, and the requests to add or remove one.

Answers `import-model` and `remove-model` on the control plane; one change at a time.
"""

import asyncio
import shutil
from pathlib import Path

import structlog

from exo.broker.bus import Bus
from exo.services.catalog.service import STARTER, Catalog
from exo.services.clock import Clock
from exo.services.downloads.imports import Progress, RefusedError, fetch_starter, import_file
from exo.services.downloads.inventory import MODEL_NAME, Held, folder_name, report, scan
from exo.services.journal import Journal
from exo.services.projection import Projection
from exo.services.settings import NodeSettings
from exo.services.telemetry.service import publish_gauge
from exo.streams.codes import Code
from exo.streams.control import ImportModel, ModelReply, RemoveModel
from exo.streams.downloads import ModelReport
from exo.streams.events import ModelsReported
from exo.streams.ids import ModelId
from exo.streams.telemetry import ImportGauge
from exo.streams.views import nodes_holding

log = structlog.get_logger(__name__)

SCAN_INTERVAL = 30.0
_FOLD_TIMEOUT = 10.0
_GAUGE_INTERVAL = 0.5


class Models:
    """Call `refresh` once before anything else."""

    def __init__(
        self,
        bus: Bus,
        *,
        projection: Projection,
        journal: Journal,
        catalog: Catalog,
        settings: NodeSettings,
        clock: Clock,
    ) -> None:
        self._bus = bus
        self._projection = projection
        self._journal = journal
        self._catalog = catalog
        self._settings = settings
        self._clock = clock
        self._held: dict[ModelId, Held] = {}
        self._changing = asyncio.Lock()

    def path_of(self, model: ModelId) -> Path | None:
        """Give the folder of a complete model, or None."""
        held = self._held.get(model)
        return held.folder if held else None

    def reports(self) -> tuple[ModelReport, ...]:
        """Describe all models for the log."""
        return tuple(report(held) for held in self._held.values())

    async def refresh(self) -> bool:
        """Look at the disk again; True when something changed."""
        settings = self._settings
        held = await asyncio.to_thread(scan, settings.model_directories, read_only=settings.read_only_directories)
        changed = held != self._held
        self._held = held
        return changed

    async def run(self) -> None:
        """Notice models that people add or delete by hand; until cancelled."""
        while True:
            await self._clock.sleep(SCAN_INTERVAL)
            async with self._changing:
                await self._refresh_and_tell()

    async def import_model(self, asked: ImportModel) -> ModelReply:
        """Import a file or the starter model; replies when it can be placed."""
        async with self._changing:
            try:
                model = await (self._import_starter() if asked.starter else self._import_file(asked))
            except RefusedError as refusal:
                log.warning("a model was not imported", code=refusal.code, reason=refusal.message)
                return ModelReply(code=refusal.code, message=refusal.message)
            except OSError as error:
                log.exception("a model could not be imported")
                return ModelReply(code=Code.INTERNAL, message=f"the model could not be imported: {error}")
            await self._refresh_and_tell()
        return await self._confirm(model)

    async def remove_model(self, asked: RemoveModel) -> ModelReply:
        """Delete the files of a model that no instance uses."""
        card = self._catalog.find_card(asked.model, self._projection.state)
        async with self._changing:
            held = self._held.get(card.model_id if card else asked.model)
            if held is None:
                return ModelReply(code=Code.MODEL_NOT_FOUND, message=f"this node holds no files of {asked.model}")
            model = held.card.model_id
            if not held.writable:
                message = f"{held.folder} is read-only; remove it by hand"
                return ModelReply(model=model, code=Code.INVALID_REQUEST, message=message)
            if self._is_placed(model):
                message = f"{model} is in use; stop it first with `exo stop {model}`"
                return ModelReply(model=model, code=Code.INVALID_REQUEST, message=message)
            await asyncio.to_thread(_delete_folder, held.folder)
            await self._refresh_and_tell()
        log.info("a model was removed", model=model)
        return ModelReply(model=model)

    async def _import_starter(self) -> ModelId:
        card = self._catalog.find_card(STARTER, self._projection.state)
        assert card is not None
        model = card.model_id
        await self.refresh()
        if model in self._held:
            return model
        if self._settings.offline:
            message = "this node is offline and cannot fetch the starter model; use `exo models import FILE.gguf`"
            raise RefusedError(Code.MODEL_FILES_MISSING, message)
        await self._show(ImportGauge(model=model, stage="fetching"))
        async with fetch_starter(self._settings.data_directory) as file:
            await self._convert(file, model)
        return model

    async def _import_file(self, asked: ImportModel) -> ModelId:
        file = Path(asked.path)
        if not file.is_absolute() or not file.is_file():
            raise RefusedError(Code.INVALID_REQUEST, f"{asked.path!r} is not the absolute path of a file on this node")
        model = ModelId(asked.model_id or file.stem)
        if not MODEL_NAME.match(model):
            raise RefusedError(Code.INVALID_REQUEST, f"{model!r} is no model name; give one like org/name")
        if self._catalog.is_reserved(model):
            raise RefusedError(Code.INVALID_REQUEST, f"{model} is the name of a built-in model; give another name")
        await self.refresh()
        if model in self._held:
            raise RefusedError(Code.INVALID_REQUEST, f"{model} is here already; give another name or remove it first")
        await self._convert(file, model)
        return model

    async def _convert(self, file: Path, model: ModelId) -> None:
        folder = self._settings.model_directories[0] / folder_name(model)

        async def show(progress: Progress) -> None:
            stage = "verifying" if progress.stage == "hashing" else "converting"
            await self._show(ImportGauge(model=model, stage=stage, done=progress.done, total=progress.total))

        try:
            await import_file(self._settings.convert_command, file, folder, model=model, on_progress=show)
        except RefusedError:
            await self._show(ImportGauge(model=model, stage="failed"))
            raise
        await self._show(ImportGauge(model=model, stage="complete"))

    async def _show(self, gauge: ImportGauge) -> None:
        await publish_gauge(
            self._bus,
            node=self._settings.node,
            name="import",
            gauge=gauge,
            interval=_GAUGE_INTERVAL,
            clock=self._clock,
        )

    async def _refresh_and_tell(self) -> None:
        if await self.refresh():
            self._journal.record(ModelsReported(node=self._settings.node, models=self.reports()))

    async def _confirm(self, model: ModelId) -> ModelReply:
        node = self._settings.node
        try:
            await self._projection.wait(lambda state: node in nodes_holding(state, model), timeout=_FOLD_TIMEOUT)
        except TimeoutError:
            message = f"{model} is imported, but the cluster has not heard of it yet; try again shortly"
            return ModelReply(model=model, code=Code.BROKER_UNAVAILABLE, message=message)
        return ModelReply(model=model)

    def _is_placed(self, model: ModelId) -> bool:
        instances = self._projection.state.instances.values()
        return any(
            instance.model.model_id == model and shard.node == self._settings.node
            for instance in instances
            for shard in instance.shards
        )


def _delete_folder(folder: Path) -> None:
    """Hide the folder first: a deletion that is cut short must not leave half a model in sight."""
    hidden = folder.with_name(f".removed-{folder.name}")
    shutil.rmtree(hidden, ignore_errors=True)
    folder.rename(hidden)
    shutil.rmtree(hidden)
