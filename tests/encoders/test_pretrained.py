"""Pretrained models from local folders: their numbers are those of `transformers`, and only what should learns."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import WORDS, write_checkpoint

from mtlscale.config import Task, TaskSuite, UserError, named_files
from mtlscale.data.format.tokenizer import tokenize
from mtlscale.encoders.text.pretrained import Pretrained, PretrainedModule
from mtlscale.torchvision_ops import declare

declare()  # transformers imports torchvision
transformers = pytest.importorskip("transformers")
pytest.importorskip("peft")

TEXTS = ["the good one", "a bad one. no one! the bads", "good"]


@pytest.fixture(scope="module", params=[0, 5])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("model"), padding=request.param)


def suite_of(folder: Path, length: int = 12, **extras: Any) -> TaskSuite:
    padding = json.loads((folder / "config.json").read_text())["pad_token_id"]
    told = {"sha256": named_files.tokenizer_hash(folder), "padding": padding, "separator": None} | extras
    return TaskSuite(
        name="small",
        tasks=(Task(name="a", loss="cross_entropy", outputs=2, metrics=("accuracy",)),),
        inputs="per_task",
        input_kind="tokens",
        input_shape=(length,),
        vocabulary_size=len(WORDS),
        extras={"tokenizer": told},
    )


def built(folder: Path, **knobs: Any) -> PretrainedModule:
    torch.manual_seed(0)
    module = Pretrained(checkpoint=str(folder), **knobs).build(suite_of(folder))
    assert isinstance(module, PretrainedModule)
    return module


def stored(folder: Path, length: int = 12) -> tuple[torch.Tensor, Any]:
    """Token ids as a prepared set has them, and what the tokenizer says."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    told = tokenizer(TEXTS, padding="max_length", max_length=length, return_tensors="pt")
    ids, padding = told["input_ids"], tokenizer.pad_token_id
    swapped = torch.where(ids == padding, 0, torch.where(ids == 0, padding, ids))
    return swapped.to(torch.int32), told


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_features_are_those_of_transformers(folder: Path, pooling: str) -> None:
    tokens, told = stored(folder)
    with torch.no_grad():
        hidden = transformers.AutoModel.from_pretrained(folder)(**told).last_hidden_state
    mask = told["attention_mask"][..., None]
    expected = (hidden * mask).sum(1) / mask.sum(1) if pooling == "mean" else hidden[:, 0]
    module = built(folder, pooling=pooling)
    assert module.features == module.embedding_size == 8
    torch.testing.assert_close(module.train()(tokens), expected)  # no dropout, in training either
    torch.testing.assert_close(module.read(module.embed(tokens), tokens), expected)


def test_the_second_text_of_a_pair_has_its_type(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    told = tokenizer(["the good", "a"], ["bad one", "no one!"], padding=True, return_tensors="pt")
    assert told["token_type_ids"].max() == 1
    with torch.no_grad():
        hidden = transformers.AutoModel.from_pretrained(folder)(**told).last_hidden_state
    suite = suite_of(folder, separator=tokenizer.sep_token_id)
    module = Pretrained(checkpoint=str(folder), pooling="first").build(suite)
    torch.testing.assert_close(module(told["input_ids"]), hidden[:, 0])
    plain = built(folder, pooling="first")
    assert not torch.allclose(plain(told["input_ids"]), hidden[:, 0])


SMALL = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
OTHERS: dict[str, dict[str, Any]] = {
    "roberta": SMALL,
    "albert": {**SMALL, "embedding_size": 6},
    "deberta-v2": SMALL,
    "qwen2": {**SMALL, "num_key_value_heads": 2},  # looks back alone
    "t5": {"d_model": 8, "d_kv": 4, "d_ff": 12, "num_layers": 2, "num_heads": 2},  # its encoder
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_models_have_their_own_features(kind: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model")
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, vocab_size=len(WORDS), pad_token_id=0, **OTHERS[kind])
    transformers.AutoModel.from_config(config).save_pretrained(folder)
    tokens, told = stored(folder)
    model = transformers.AutoModel.from_pretrained(folder)
    model = model.get_encoder() if config.is_encoder_decoder else model
    with torch.no_grad():
        hidden = model(input_ids=told["input_ids"], attention_mask=told["attention_mask"]).last_hidden_state
    mask = told["attention_mask"][..., None]
    expected = (hidden * mask).sum(1) / mask.sum(1)
    for module in (built(folder), built(folder, tune="lora")):
        torch.testing.assert_close(module(tokens), expected)
        torch.testing.assert_close(module.read(module.embed(tokens), tokens), expected)


def test_a_text_without_padding_is_read_alike(folder: Path) -> None:
    tokens, _ = stored(folder)
    module = built(folder)
    words = int((tokens[0] != 0).sum())
    torch.testing.assert_close(module(tokens[:1, :words]), module(tokens)[:1])


@pytest.mark.parametrize("tune", ["frozen", "full", "lora"])
def test_it_has_the_type_of_training_and_no_values_where_none_are_asked_for(folder: Path, tune: str) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        module = built(folder, tune=tune)
        with torch.device("meta"):
            empty = built(folder, tune=tune)
    finally:
        torch.set_default_dtype(torch.float32)
    tokens, _ = stored(folder)
    assert module(tokens).dtype == torch.float64
    torch.testing.assert_close(module(tokens).float(), built(folder)(tokens))
    assert {value.device.type for value in empty.parameters()} == {"meta"}
    shapes = [[(name, v.shape, v.dtype, v.requires_grad) for name, v in m.named_parameters()] for m in (module, empty)]
    assert shapes[0] == shapes[1]


def test_nothing_is_fetched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reached(*_: Any) -> None:
        raise AssertionError("the network was asked")

    for owner, name in ((socket.socket, "connect"), (socket, "getaddrinfo")):
        monkeypatch.setattr(owner, name, reached)
    assert built(folder, tune="lora").features == 8
    assert len(tokenize("x", folder, TEXTS, [None] * len(TEXTS), 12).counts) == len(TEXTS)


def test_an_empty_text_has_finite_features(folder: Path) -> None:
    assert built(folder)(torch.zeros(2, 12, dtype=torch.int32)).isfinite().all()


@pytest.mark.parametrize("tune", ["frozen", "full", "lora"])
def test_what_learns(folder: Path, tune: str) -> None:
    module, head = built(folder, tune=tune, rank=2), torch.nn.Linear(8, 1)
    before = {name: value.clone() for name, value in module.named_parameters()}
    tokens, _ = stored(folder)
    plain = built(folder)(tokens)
    torch.testing.assert_close(module(tokens), plain)  # adapters begin as nothing
    moving = [value for value in module.parameters() if value.requires_grad]
    optimiser = torch.optim.SGD([*moving, *head.parameters()], lr=0.1)
    for _ in range(2):  # the first step moves B alone, A has no gradient while B is zero
        optimiser.zero_grad()
        head(module.train()(tokens)).square().sum().backward()
        optimiser.step()
    moved = {name for name, value in module.named_parameters() if not torch.equal(value, before[name])}
    adapters = {name for name in before if "lora_" in name}
    if tune == "full":
        assert not adapters and {name for name in before if "bias" not in name} <= moved
    else:
        assert {name for name in adapters if "lora_B" in name} <= moved <= adapters  # some A by less than rounding
        assert bool(adapters) == (tune == "lora")
    assert torch.equal(module(tokens), plain) == (tune == "frozen")


def test_folders_that_are_refused(tmp_path: Path) -> None:
    def refused(match: str, suite: TaskSuite | None = None) -> None:
        with pytest.raises(UserError, match=match) as told:
            Pretrained(checkpoint=str(folder)).build(suite or whole)
        assert "\n" not in str(told.value)

    folder = write_checkpoint(tmp_path / "model")
    whole = suite_of(folder)
    refused("takes 32 tokens, small has 33; lower its `length`", suite_of(folder, 33))
    refused("prepared with another tokenizer", suite_of(folder, sha256="0"))
    weights, config, tokenizer = (folder / name for name in ("model.safetensors", "config.json", "tokenizer.json"))
    kept = {path: path.read_bytes() for path in (weights, config, tokenizer)}
    weights.write_bytes(kept[weights][:1000])
    refused("cannot be loaded")
    with torch.device("meta"):
        refused("cannot be loaded")
    weights.rename(folder / "pytorch_model.bin")
    refused(r"has only pickled weights \(pytorch_model.bin\), which are never loaded")
    (folder / "pytorch_model.bin").unlink()
    refused("has no weights; save them as model.safetensors")
    weights.write_bytes(kept[weights])
    tokenizer.unlink()
    refused("has no tokenizer; save tokenizer.json")
    tokenizer.write_bytes(kept[tokenizer])
    config.write_text(kept[config].decode().replace('"num_hidden_layers": 2', '"num_hidden_layers": 3'))
    refused("its weights lack encoder.layer.2")
    config.write_text(json.dumps({**json.loads(kept[config]), "_attn_implementation": "someone/kernel"}))
    refused("config.json wants _attn_implementation = 'someone/kernel'; drop this line")
    config.write_bytes(kept[config])
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "someone/model"}')
    refused(r"holds adapters \(adapter_config.json\); merge them into the model")
    (folder / "adapter_config.json").unlink()
    config.write_text("{")
    refused("config.json cannot be read")
    config.unlink()
    refused("has no config.json")
    with pytest.raises(UserError, match="name a folder with a model"):
        Pretrained().build(whole)


def test_words_of_a_set_are_no_tokens(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model")
    suite = suite_of(folder)
    own = TaskSuite(**{**vars(suite), "extras": {}})
    with pytest.raises(UserError, match="holds words of its own; prepare it with the option `tokenizer"):
        Pretrained(checkpoint=str(folder)).build(own)
