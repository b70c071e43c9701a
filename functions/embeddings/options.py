"""The manifest's `options` for the embeddings function, on any engine."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

TiktokenEncoding = Literal["cl100k_base", "o200k_base", "p50k_base", "r50k_base"]


class TokenIds(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The vocabulary of token ids in requests, and its file."""

    encoding: TiktokenEncoding = "cl100k_base"
    """Name of the vocabulary."""
    file: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    """The vocabulary's `.tiktoken` file: a path, relative to the manifest's folder, or `package:NAME/FILE`. Without it
    it is what the package `tiktoken` keeps in the folder of `TIKTOKEN_CACHE_DIR`; nothing is fetched."""


class EmbeddingsOptions(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The manifest's `options` when the task is `embeddings`, beside the engine's."""

    truncate: bool = False
    """Cut inputs that are longer than the model takes, instead of answering 400. A request's `truncate` goes first."""
    normalize: bool | Literal["auto"] = "auto"
    """Scale vectors to length 1. `auto` does what the model's `modules.json` says, and does it where there is no such
    file, as in GGUF."""
    matryoshka: bool | list[Annotated[int, msgspec.Meta(ge=1)]] | Literal["auto"] = "auto"
    """Whether a request's `dimensions` may cut vectors: `true` to any size, or a list of sizes. Only models trained for
    it stay good when cut; `auto` allows it where the model's own files name such sizes."""
    prompts: dict[str, str] = {}
    """Texts to put before inputs, by name (`query`, `document`, …); they replace the model's own by name."""
    token_ids: Literal["own", "cl100k_base", "o200k_base", "p50k_base", "r50k_base"] | TokenIds = "own"  # noqa: S105 - no secret
    """The vocabulary that token ids in `input` are of. `own` is the model's. The others are OpenAI's, which LangChain's
    `OpenAIEmbeddings` sends by default: ids become text again, and the text is embedded. An object with `encoding` and
    `file` names the file that holds the vocabulary."""
