"""Pretrained language models from a local folder, in the format of `transformers`."""

from __future__ import annotations

import copy
import functools
import importlib.util
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mtlscale.config import TaskSuite, UserError, checkpoints, knob, named_files
from mtlscale.data.format.sequences import lengths
from mtlscale.encoders.contract import Encoder, EncoderModule
from mtlscale.torchvision_ops import declare


class Pretrained(Encoder):
    """Pretrained language model from a local folder, frozen, tuned as a whole, or by low-rank adapters (LoRA).

    `checkpoint` is a folder with config.json, weights as safetensors and the tokenizer. Nothing is downloaded; pickled
    weights and code in the folder are never loaded. The data set has to be prepared with the same tokenizer (option
    `tokenizer` of the text pipelines). Features are the mean over a text's tokens, special tokens included, or those of
    its first token. The model's own dropout is off. LoRA adds (alpha / rank) B A to every linear layer, with B = 0 at
    first.
    """

    name: ClassVar[str] = "pretrained"
    source: ClassVar[str] = "the checkpoint's own; LoRA: Hu et al., ICLR 2022"
    inputs: ClassVar[tuple[str, ...]] = ("tokens",)

    checkpoint: str | None = knob(None, file="checkpoint", help="folder with the model, its weights and its tokenizer")
    tune: str = knob("frozen", choices=("frozen", "full", "lora"), help="what of the model learns")
    pooling: str = knob("mean", choices=("mean", "first"), help="of the tokens of a text")
    rank: int = knob(8, low=1, help="of an adapter; lora")
    alpha: float = knob(16.0, low=0.0, open_low=True, help="an adapter counts alpha / rank; lora")

    _weights: ClassVar[bool] = True  # whether the folder must hold weights

    def without_files(self, folder: Path | None) -> Encoder:
        return _Described(**{**{name: getattr(self, name) for name in self.knobs()}, "checkpoint": str(folder)})

    def build(self, suite: TaskSuite) -> EncoderModule:
        settings = {"tune": self.tune, "rank": self.rank, "alpha": self.alpha, "weights": self._weights}
        model = checkpoint_model(self.name, self.checkpoint, suite, **settings)  # type: ignore[arg-type]
        tokenizer = suite.extras["tokenizer"]
        return PretrainedModule(model, self.pooling, tokenizer["padding"], tokenizer["separator"])


class _Described(Pretrained):
    """Variant of the encoder for a folder without weights."""

    _weights: ClassVar[bool] = False


def checkpoint_model(
    name: str, checkpoint: str | None, suite: TaskSuite, *, tune: str, rank: int, alpha: float, weights: bool
) -> Any:
    """Build the model of a checkpoint folder.

    Args:
        name: Name of the encoder, for messages.
        suite: The suite whose tokens the model reads.
        tune: The parameters to train: "frozen" (none), "full" (all) or "lora" (adapters).
        rank: Rank of an adapter.
        alpha: An adapter counts alpha / rank.
        weights: Whether to load the folder's weights; if not, the weights are arbitrary.

    Raises:
        UserError: If the folder does not exist, or its model does not fit the suite's tokens.
    """
    if checkpoint is None:
        raise UserError(f"{name}: name a folder with a model: `checkpoint: FOLDER`")
    for package in ("transformers", *(["peft"] if tune == "lora" else [])):
        if importlib.util.find_spec(package) is None:
            raise UserError(f"{name} needs {package}; pip install 'mtlscale[text]'")

    folder = named_files.locate(checkpoint)
    label = f"{name}: {folder}"
    checkpoints.check_folder(folder, label, weights=weights)
    _check_tokens(name, suite, folder, label)

    if not weights:
        model = _described(folder, label)
    elif torch.get_default_device().type == "meta":  # only checks that method, model and data fit
        content_hash = named_files.with_content_hash(str(folder))["sha256"]
        model = copy.deepcopy(_without_values(folder, label, content_hash, torch.get_default_dtype()))
    else:
        model = _loaded(folder, label)

    size = int(model.get_input_embeddings().num_embeddings)
    if (suite.vocabulary_size or 0) > size + (suite.extras["tokenizer"]["padding"] >= size):
        raise UserError(f"{label} has {size} tokens, its tokenizer {suite.vocabulary_size}; save both again")

    model.requires_grad_(tune == "full")
    if tune == "lora":
        _adapt(model, rank, alpha)
    return model


def _check_tokens(name: str, suite: TaskSuite, folder: Path, where: str) -> None:
    """Raise `UserError` if the suite's token ids are not this checkpoint's, or its texts are too long for it."""
    if suite.input_kind != "tokens":
        raise UserError(f"{name} reads tokens, {suite.name} has {suite.input_kind}; choose another encoder")

    tokenizer = suite.extras.get("tokenizer")
    if tokenizer is None:
        raise UserError(
            f"{name}: {suite.name} holds words of its own; prepare it with the option `tokenizer: {folder}`"
        )
    if tokenizer["sha256"] != named_files.tokenizer_hash(folder):
        raise UserError(f"{name}: {suite.name} was prepared with another tokenizer; prepare it with "
                        f"`tokenizer: {folder}`")  # fmt: skip

    longest = checkpoints.longest(checkpoints.read_config(folder, where))
    if longest is not None and suite.input_shape[0] > longest:
        raise UserError(f"{where} takes {longest} tokens, {suite.name} has {suite.input_shape[0]}; lower its `length`")


@functools.lru_cache(maxsize=2)
def _without_values(folder: Path, where: str, content: str, dtype: torch.dtype) -> Any:
    """Return the model of a folder with this content; it is loaded for real, since its weights may be at fault."""
    with torch.device("cpu"):
        return _loaded(folder, where).to("meta")


def _loaded(folder: Path, where: str) -> Any:
    """Load the model in the default type, without its own pooling layer; `UserError` if its files do not fit."""
    declare()  # transformers imports torchvision
    from transformers import AutoModel
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()

    try:
        model, loading_info = AutoModel.from_pretrained(
            folder,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            dtype=torch.get_default_dtype(),
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported below, in one line
        )
    except Exception as error:  # its file readers raise many types
        text = (str(error).splitlines() or [""])[0]
        raise UserError(f"{where} cannot be loaded ({type(error).__name__}: {text}); save the model again") from None

    missing = sorted(name for name in loading_info["missing_keys"] if not name.startswith("pooler."))
    if missing or loading_info["mismatched_keys"]:
        problem = f"lack {missing[0]}" if missing else "have other shapes than config.json says"
        raise UserError(f"{where}: its weights {problem}; save the model again")
    return _trimmed(model)


def _described(folder: Path, where: str) -> Any:
    """Build the model that a folder's configuration describes, with arbitrary weights."""
    declare()
    from transformers import AutoConfig, AutoModel

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        return _trimmed(AutoModel.from_config(config, dtype=torch.get_default_dtype(), trust_remote_code=False))
    except Exception as error:  # its file readers raise many types
        text = (str(error).splitlines() or [""])[0]
        raise UserError(f"{where} cannot be read ({type(error).__name__}: {text}); export the model again") from None


def _trimmed(model: Any) -> Any:
    """Return the part of a model that is used: its encoder without a pooling layer, and with masked attention."""
    if model.config.is_encoder_decoder:
        model = model.get_encoder()
    if isinstance(getattr(model, "pooler", None), nn.Module):
        model.pooler = None
    if model.config._attn_implementation == "sdpa":
        model.set_attn_implementation(_attention())
    return model


@functools.cache
def _attention() -> str:
    """Register torch's attention with the mask always given, and return its name."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    # Otherwise `transformers` asks the device for padding, and the host waits for that once a batch.
    def mask(**given: Any) -> Any:
        return sdpa_mask(**{**given, "allow_is_causal_skip": False, "allow_is_bidirectional_skip": False})

    AttentionInterface.register("masked_sdpa", sdpa_attention_forward)
    AttentionMaskInterface.register("masked_sdpa", mask)
    return "masked_sdpa"


def _adapt(model: nn.Module, rank: int, alpha: float) -> None:
    """Add adapters beside every linear layer, in place; all other parameters are frozen."""
    from peft import LoraConfig, inject_adapter_in_model

    inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear"), model)


class PretrainedModule(EncoderModule):
    """Network from a checkpoint's token ids [B, L], padding 0, to features [B, hidden size].

    With the pooling `tokens` it returns each token's features, [B L, hidden size].

    `padding` is the id that stands for the tokenizer's 0, which was exchanged with its padding. `separator` is the id
    between the texts of a pair, for models that distinguish their tokens by type.
    """

    def __init__(self, model: Any, pooling: str, padding: int, separator: int | None) -> None:
        super().__init__()
        self.model = model.eval()
        self.pooling, self.padding, self.separator = pooling, padding, separator
        self.features = int(model.config.hidden_size)

    def train(self, mode: bool = True) -> PretrainedModule:
        super().train(mode)
        self.model.eval()  # its dropout draws from a generator that does not depend on the worker
        return self

    @property
    def embedding_size(self) -> int:
        return int(self.model.get_input_embeddings().embedding_dim)

    def embed(self, inputs: Tensor) -> Tensor:
        embedded: Tensor = self.model.get_input_embeddings()(self._ids(inputs))
        return embedded

    def read(self, embedded: Tensor, inputs: Tensor) -> Tensor:
        tokens = self._narrowed(inputs)
        return self._pooled(tokens, inputs_embeds=embedded[:, : tokens.shape[1]])

    def forward(self, inputs: Tensor) -> Tensor:
        tokens = self._narrowed(inputs)
        return self._pooled(tokens, input_ids=self._ids(tokens))

    def _narrowed(self, tokens: Tensor) -> Tensor:
        """Drop the positions that are padding in every text."""
        # On a device, the host would have to wait for the lengths.
        if self.pooling == "tokens" or not tokens.is_cpu:
            return tokens
        return tokens[:, : max(1, int(lengths(tokens).max()))]

    def _ids(self, tokens: Tensor) -> Tensor:
        """Return the tokenizer's own ids."""
        size = int(self.model.get_input_embeddings().num_embeddings)
        ids = torch.where(tokens == self.padding, 0, tokens)
        # The model does not attend to padding: any id does where it has no vector for it.
        return torch.where(tokens == 0, self.padding if self.padding < size else 0, ids).long()

    def _pooled(self, tokens: Tensor, **states: Tensor) -> Tensor:
        words = tokens != 0
        words[:, 0] = True  # an empty text is one token of padding
        if self.separator is not None:
            ends = (tokens == self.separator).long()
            states["token_type_ids"] = ((ends.cumsum(1) - ends) * words).clamp(max=1)
        hidden: Tensor = self.model(attention_mask=words.long(), **states).last_hidden_state
        if self.pooling == "tokens":
            return hidden.flatten(0, 1)
        if self.pooling == "first":
            return hidden[:, 0]
        return (hidden * words[..., None]).sum(1) / words.sum(1, keepdim=True)
