"""Token counts and speeds in the shapes of OpenAI and of upstream exo. Pure."""

from typing import Any

from exo.streams.chunks import Done, Usage


def render_usage(usage: Usage) -> dict[str, Any]:
    """OpenAI's usage object, every detail present."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def render_statistics(done: Done) -> dict[str, Any]:
    """The final comment of a stream: upstream's keys, then ours."""
    statistics, usage = done.statistics, done.usage
    return {
        "prompt_tps": statistics.prompt_tokens_per_second,
        "generation_tps": statistics.generated_tokens_per_second,
        "prompt_tokens": usage.prompt,
        "generation_tokens": usage.completion,
        "peak_memory_usage": {"in_bytes": statistics.peak_memory},
        "prefix_cache_hit": _describe_hit(usage),
        "queue_seconds": statistics.queue_time,
        "prefill_seconds": statistics.prefill_time,
        "decode_seconds": statistics.decode_time,
    }


def _describe_hit(usage: Usage) -> str:
    if usage.cached == 0:
        return "none"
    # The last token of a prompt is always computed, so a full hit leaves one.
    return "exact" if usage.cached >= usage.prompt - 1 else "partial"
