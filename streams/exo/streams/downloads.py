"""What each node holds of each model."""

from typing import Literal

import msgspec

from exo.streams.models import ModelCard

DownloadStatus = Literal["absent", "partial", "downloading", "paused", "verifying", "complete", "failed", "read_only"]


class ModelReport(msgspec.Struct, frozen=True, kw_only=True):
    """One model on one node. Sizes in bytes; `reason` says why a status is `failed`."""

    card: ModelCard
    status: DownloadStatus
    size_bytes: int = 0
    total_bytes: int = 0
    reason: str = ""
