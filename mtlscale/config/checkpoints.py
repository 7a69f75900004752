"""Folders with a pretrained model as `transformers` saves them: required files, and the files that identify it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mtlscale.config.errors import UserError

CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
ADAPTERS = "adapter_config.json"
COUNTED = (".json", ".model", ".safetensors", ".txt")  # other files, such as READMEs, do not identify a model
_OLDER_TOKENIZERS = ("vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model")
_WITH_OLDER = ("merges.txt", "added_tokens.json", "special_tokens_map.json", "tokenizer_config.json")
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_ATTENTION = ("attn_implementation", "_attn_implementation")
# Models whose position ids start after the padding id.
_PLACES_AFTER_PADDING = frozenset({"camembert", "data2vec-text", "mpnet", "roberta", "xlm-roberta", "xmod"})


def counted_files(folder: Path) -> list[Path]:
    """List the files directly in a folder that tell one model from another, sorted by name."""
    return sorted(
        path for path in folder.iterdir() if path.suffix in COUNTED and not path.name.startswith(".") and path.is_file()
    )


def tokenizer_files(folder: Path) -> list[Path]:
    """List the files that a tokenizer is made of; empty if the folder has no tokenizer."""
    if (folder / TOKENIZER).is_file():
        return [folder / TOKENIZER]
    if not any((folder / name).is_file() for name in _OLDER_TOKENIZERS):
        return []
    return [folder / name for name in sorted((*_OLDER_TOKENIZERS, *_WITH_OLDER)) if (folder / name).is_file()]


def check_folder(folder: Path, where: str, *, weights: bool) -> None:
    """Raise `UserError` if a folder lacks a model configuration, a tokenizer or required weights.

    Args:
        where: The beginning of the error message.
        weights: Whether weights are required; pickled ones do not count.
    """
    if not (folder / CONFIG).is_file():
        raise UserError(f"{where} has no {CONFIG}; name a folder that save_pretrained of transformers wrote")
    read_config(folder, where)
    if (folder / ADAPTERS).is_file():
        raise UserError(f"{where} holds adapters ({ADAPTERS}); merge them into the model and save that")

    if weights and not any(path.suffix == ".safetensors" for path in counted_files(folder)):
        pickled = next((name for name in _PICKLED if (folder / name).is_file()), None)
        problem = f"has only pickled weights ({pickled}), which are never loaded" if pickled else "has no weights"
        raise UserError(f"{where} {problem}; save them as model.safetensors")

    if not tokenizer_files(folder):
        raise UserError(f"{where} has no tokenizer; save {TOKENIZER} beside {CONFIG}")


def read_config(folder: Path, where: str) -> dict[str, Any]:
    """Return the model's configuration.

    Raises:
        UserError: If it cannot be read, names no model type, or sets an attention implementation other than eager or
            sdpa.
    """
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{where}: {CONFIG} cannot be read ({error}); save the model again") from None
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise UserError(f"{where}: {CONFIG} names no model_type; save the model with save_pretrained of transformers")
    for key in _ATTENTION:  # any other name is a repository, whose code would be fetched and run
        if config.get(key) not in (None, "eager", "sdpa"):
            raise UserError(f"{where}: {CONFIG} wants {key} = {config[key]!r}; drop this line")
    return config


def longest(config: dict[str, Any]) -> int | None:
    """Return the most tokens that a model takes; None if its configuration sets no limit."""
    positions = config.get("max_position_embeddings", config.get("n_positions"))
    if not isinstance(positions, int):
        return None
    if config.get("model_type") in _PLACES_AFTER_PADDING:
        return positions - int(config.get("pad_token_id") or 0) - 1
    return positions
