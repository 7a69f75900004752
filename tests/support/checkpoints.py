"""A pretrained model of a few numbers, in a folder as `transformers` saves it."""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mtlscale.config.registry import components
from mtlscale.torchvision_ops import declare

# Components of `mtlscale.nas` and `mtlscale.rl`, which a core without these families does not have.
FAMILY_COMPONENTS = {
    *("aaspc", "cell_network", "darts", "e2rnas", "e2rnas_pcdarts", "e2rnas_pdarts", "pcdarts", "pdarts"),
    *("darts_cells", "darts_cells_imagenet"),
    *("sac", "sac_conal", "soft_modules", "random_actions", "scripted_expert", "metaworld"),
}

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "the", "no", "one", "a", "##s", ".", "!", ":", "##0", "##1"]

NEEDED = ("transformers", "peft")
needs_transformers = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, NEEDED)), reason=f"{' and '.join(NEEDED)} are not installed"
)


def where_installed(names: Iterable[str]) -> list[Any]:
    """Return names of cases as parameters of a test, with a mark that skips those whose parts are not installed.

    These are pretrained models, where no library loads them, and components of a family that is not there.
    """
    return [pytest.param(name, marks=_marks(name)) for name in names]


def _marks(name: str) -> Any:
    if "pretrained" in name:
        return needs_transformers
    words = set(re.split(r"[^\w]+", name))
    missing = sorted(words & FAMILY_COMPONENTS - installed())
    return pytest.mark.skip(f"{missing[0]} is not installed") if missing else ()


@functools.cache
def installed() -> set[str]:
    return {name for kind in components.PACKAGES for name in components.names(kind, plugins=False)}


def write_checkpoint(folder: Path, *, padding: int = 0, seed: int = 0) -> Path:
    """A BERT with two layers of eight numbers that takes 32 tokens; its padding has that id.

    Its weights are numpy's, so that they are the same whatever `transformers` begins with.
    """
    import torch

    declare()  # transformers imports torchvision
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import Lowercase
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import BertProcessing
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
    from transformers.utils import logging

    logging.disable_progress_bar()
    words = [*WORDS[1 : padding + 1], WORDS[0], *WORDS[padding + 1 :]]
    tokenizer = Tokenizer(WordPiece({word: n for n, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = Lowercase(), BertPreTokenizer()
    tokenizer.post_processor = BertProcessing(*((word, words.index(word)) for word in ("[SEP]", "[CLS]")))
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=32,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **{f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep")},
    ).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(words), hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
        max_position_embeddings=32, pad_token_id=padding,
    )  # fmt: skip
    model, rng = BertModel(config), np.random.default_rng(seed)
    for name, value in sorted(model.named_parameters()):
        begin = 1.0 if name.endswith("LayerNorm.weight") else 0.0
        value.data = torch.from_numpy(begin + 0.1 * rng.normal(size=value.shape)).float()
    model.save_pretrained(folder)
    return folder
