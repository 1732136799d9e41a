"""How a shard is to be run, from the node's settings and what placement counted. Pure."""

from exo.services.placement.memory import engine_of, estimate
from exo.services.settings import EngineSettings
from exo.streams.instances import Instance, Shard
from exo.streams.pipe import EngineOptions


def build_options(instance: Instance, shard: Shard, settings: EngineSettings) -> EngineOptions:
    """Give the options of one runner; dense weights only where placement left room for them."""
    dense = estimate(instance.model, context_length=instance.context_length, form="dense")
    has_room = instance.model.parameters > 0 and shard.memory_bytes >= dense.total
    return EngineOptions(
        engine=engine_of(instance.model),
        max_batch=settings.max_batch,
        max_queue=settings.max_queue,
        prefill_step=settings.prefill_step,
        blas_threads=settings.blas_threads,
        dense_weights=settings.dense_weights if has_room else False,
        memory_limit=shard.memory_bytes,
        script=settings.script,
    )
