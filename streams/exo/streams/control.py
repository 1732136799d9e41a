"""Requests to one node with a reply, on `exo.control.<node>.<verb>`.

For work that concerns one machine and needs no agreement. Replies carry `code` and `message` when
the node refuses; `code` is empty on success.
"""

import msgspec

from exo.streams.ids import InstanceId, ModelId
from exo.streams.requests import GenerationRequest

IMPORT_MODEL = "import-model"
REMOVE_MODEL = "remove-model"
COUNT_TOKENS = "count-tokens"


class ImportModel(msgspec.Struct, frozen=True, kw_only=True):
    """Make a model directory of a local GGUF file, or fetch the starter model when `starter` is set.

    `model_id` names the result; empty takes the name from the file. The reply comes when the model
    is usable; progress is published as `ImportGauge`.
    """

    path: str = ""
    starter: bool = False
    model_id: str = ""


class RemoveModel(msgspec.Struct, frozen=True, kw_only=True):
    """Delete a model's files from this node."""

    model: ModelId


class ModelReply(msgspec.Struct, frozen=True, kw_only=True):
    """The model that was imported or removed."""

    model: ModelId = ModelId("")
    code: str = ""
    message: str = ""


class CountTokensOf(msgspec.Struct, frozen=True, kw_only=True):
    """Render and tokenise a request as an instance whose rank 0 runs on this node would."""

    instance: InstanceId
    request: GenerationRequest


class CountReply(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of the rendered prompt."""

    tokens: int = 0
    code: str = ""
    message: str = ""
