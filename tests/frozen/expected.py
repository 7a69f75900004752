"""What the cases ended with when they were frozen, and which of them may end otherwise since.

In the file the numbers of every run stand in one row, behind the name of their shape: most of it would else be keys.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from frozen.cases import NEWEST_BY_GRADIENTS, NEWEST_BY_LOSSES, SHOPS

Result = dict[str, Any]

FILE = Path(__file__).with_name("runs.json")  # by the engine of the first storey, at revision 5b9bccc
SINCE = Path(__file__).with_name("mended.json")  # of the cases in MENDED, by today's
DIGITS = 15

_SAME_BATCH = "FAMO looks at the same batch before and after the step, as its authors do"
_HALVES = "support and query come from disjoint halves of the training data"
_ABSENT = "a task without labels in a step keeps its part of the balancer's state as it is"
_REUSED = "gramian_every holds with accumulation, too"
_FITTED = "what is computed from the labels takes one epoch, however many the others take"
_CONDITIONED = "as it was, the case multiplied rounding by 3e4 and more: another processor ended elsewhere"
_STEP = "the number of tasks is that of the tasks in the step, and kept weights are for the same tasks"
_LATER = "there was none when the others were frozen"
# Name of a case -> why it ends elsewhere since it was frozen.
MENDED: dict[str, str] = {
    "balancer/famo": _SAME_BATCH,
    "balancer, shared inputs/famo": _SAME_BATCH,
    "resume/famo": _SAME_BATCH,
    "batched, side by side/famo": _SAME_BATCH,
    "balancer/auto_lambda": _HALVES,
    "balancer/meta_weighting": _HALVES,
    "balancer, shared inputs/auto_lambda": _HALVES,
    "balancer, shared inputs/meta_weighting": _HALVES,
    "architecture and balancer/topicwise meta_weighting": _HALVES,
    "training/accumulate 2, meta_weighting": _HALVES,
    "training/accumulate 3, meta_weighting": _HALVES,
    "resume/meta_weighting": _HALVES,
    "two workers/meta_weighting": _HALVES,
    "balancer, steps without labels/famo": _SAME_BATCH,
    "balancer, steps without labels/gradnorm": _ABSENT,
    "training/accumulate 2, aamtrl": _REUSED,
    "training/accumulate 3, aamtrl": _REUSED,
    "architecture/constant": _FITTED,
    "balancer/getmtl_released": _LATER,
    "architecture/linear": _LATER,
    "architecture/forest": _LATER,
    "architecture/boosting": _LATER,
    "encoder/word_char, cnn, equal": _LATER,
    "encoder/word_char, bilstm, pcgrad": _LATER,
    "encoder/token_layers, mgda": _LATER,
    "encoder/token_layers, ltb": _LATER,
    "encoder/pretrained_layers equal": _LATER,
    "encoder/pretrained_layers mgda": _LATER,
    "encoder/pretrained_layers cagrad": _LATER,
    "architecture/frequent_tag": _LATER,
    "architecture/random_actions": _LATER,
    "architecture/scripted_expert": _LATER,
    "two workers/word_char": _LATER,
    "resume/word_char": _LATER,
    "architecture/aligned": _LATER,
    "architecture/branched": _LATER,
    "architecture, images/branched": _LATER,
    "architecture/bmtas": _LATER,
    "architecture, images/bmtas": _LATER,
    "architecture/ltb": _LATER,
    "architecture, images/ltb": _LATER,
    "architecture/dsmtl_al": _LATER,
    "architecture/dsmtl_il": _LATER,
    "architecture/dsmtl_jl": _LATER,
    "architecture, images/dsmtl_al": _CONDITIONED,
    "architecture, images/dsmtl_il": _LATER,
    "architecture, images/dsmtl_jl": _LATER,
    "architecture/conal": _LATER,
    "architecture/conal_pro": "tasks that have left the search rest; they trained on before",
    "architecture, images/conal": _CONDITIONED,
    "architecture, images/conal_plus": _CONDITIONED,
    "architecture, images/hps_plus": _LATER,
    "encoder/textcnn_mlp": _LATER,
    "balancer/conflict_noticed": _LATER,
    "balancer, shared inputs/conflict_noticed": _LATER,
    "encoder/averaged": _LATER,
    "encoder/transformer": _LATER,
    "architecture, images/mtl_nas": _LATER,
    "architecture/tag": _LATER,
    "encoder/pretrained equal": _LATER,
    "encoder/pretrained mgda": _LATER,
    "encoder/pretrained pcgrad": _LATER,
    "encoder/resnet50": _CONDITIONED,
    "domains/population_correlation": _LATER,
    "domains/mmd": _LATER,
    "domains/coral": _LATER,
    "domains/cmd": _LATER,
    "domains/kl": _LATER,
    "domains/jan": _LATER,
    "domains/proxy_a": _LATER,
    "domains/dann": _LATER,
    "domains/cdan": _LATER,
    "domains/source alone": _LATER,
    "domains/aaspc": _LATER,
    "architecture, cells/cell_network": _LATER,
    "architecture, cells/darts": _LATER,
    "architecture, cells/e2rnas": _LATER,
    "architecture, cells/pcdarts": _LATER,
    "architecture, cells/pdarts": _LATER,
    "architecture, cells/e2rnas_pcdarts": _LATER,
    "architecture, cells/e2rnas_pdarts": _LATER,
    "encoder/darts_cells": _LATER,
    "encoder/darts_cells_imagenet": _LATER,
    **{f"balancer/{name}": _LATER for name in (*NEWEST_BY_LOSSES, *NEWEST_BY_GRADIENTS)},
    "encoder/embedding_mlp, mgda": _LATER,
    "encoder/deepfm, uncertainty": _LATER,
    "encoder/dcn_v2, pcgrad": _LATER,
    "batched, categories/embedding_mlp mgda": _LATER,
    "batched, categories/deepfm equal": _LATER,
    "batched, categories/dcn_v2 pcgrad": _LATER,
    **dict.fromkeys(
        ("encoder/mpnn, mgda", "encoder/mpnn, branched", "encoder/schnet, pcgrad", "two workers/mpnn"), _LATER
    ),
    **dict.fromkeys(("batched, graphs/mpnn mgda", "batched, graphs/schnet equal"), _LATER),
    **{f"architecture, categories/{name}": _LATER for name in SHOPS},
    **{f"architecture, categories/{name} mgda": _LATER for name in SHOPS},
    "objective/behavioral_calibrator": _LATER,
    "share/equal": _LATER,
    "share/meta_weighting": _LATER,
    "share/svd_reweighting": _LATER,
    "share/shared inputs": _LATER,
    "share/batched": _LATER,
    **dict.fromkeys(
        (
            "balancer, steps without labels/mgda",
            "balancer, steps without labels/mgda_ub",
            "balancer, steps without labels/meta_weighting",
            "balancer, steps without labels/cagrad, gramian every 2",
            "balancer, steps without labels/mgda, gramian every 2",
            "batched, one after another/steps without labels, mgda",
            "batched, shared inputs/steps without labels, mgda",
            "batched, shared inputs/other seeds",
            "two workers/steps without labels",
            "share/mgda",
            "share/two workers",
        ),
        _STEP,
    ),
}


def expected() -> dict[str, list[Result]]:
    """Name of a case -> its results, one for each trial: as frozen, or as mended since."""
    since = _read(SINCE)
    return _read(FILE) | {name: results for name, results in since.items() if name in MENDED}


def _read(file: Path) -> dict[str, list[Result]]:
    if not file.exists():
        return {}
    content = json.loads(file.read_text(encoding="utf-8"))
    shapes = content["shapes"]
    return {
        name: [_whole(_filled(shape, shapes, iter(leaves))) for shape, *leaves in rows]
        for name, rows in content["cases"].items()
    }


def write(results: Mapping[str, list[Result]], file: Path = FILE) -> None:
    """One line for each shape and case."""
    shapes: dict[str, str] = {}
    cases = {}
    for name in sorted(results):
        short = [_shortened(rounded(one)) for one in results[name]]
        cases[name] = _text([[_shape(one, shapes), *_leaves(one)] for one in short])
    tables = [",\n".join(f"{_text(key)}:{table[key]}" for key in sorted(table)) for table in (shapes, cases)]
    file.write_text('{"shapes":{\n' + '\n},"cases":{\n'.join(tables) + "\n}}\n", encoding="utf-8")


def rounded(value: Any) -> Any:
    """As it is kept: more digits than the tolerance asks for, but not all."""
    if isinstance(value, dict):
        return {key: rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [rounded(entry) for entry in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _shortened(one: Result) -> Result:
    """Without what is empty and, of a finished run's chosen parameters and their metrics, those that are the last."""
    if one["status"] == "finished":
        chosen = {name: tensor for name, tensor in one["chosen"].items() if one["last"][name] != tensor}
        metrics = {split: v for split, v in one["metrics"].items() if one["metrics"].get(f"last {split}") != v}
        one = {**one, "chosen": chosen, "metrics": metrics}
    return {key: value for key, value in one.items() if value or value == 0}


def _whole(one: Result) -> Result:
    if one["status"] != "finished":
        return one
    last = {split: one["metrics"][f"last {split}"] for split in ("val", "test")}
    return {**one, "chosen": {**one["last"], **one.get("chosen", {})}, "metrics": {**last, **one["metrics"]}}


def _shape(value: Any, shapes: dict[str, str]) -> Any:
    """The value with null for every leaf, its length for a list of leaves and, where that is shorter, the key in
    `shapes` of a dictionary's shape."""
    if isinstance(value, dict):
        shape = {key: _shape(entry, shapes) for key, entry in value.items()}
        text = _text(shape)
        if len(text) < 16:
            return shape
        key = hashlib.sha256(text.encode()).hexdigest()[:8]
        shapes[key] = text
        return key
    if isinstance(value, list):
        nested = any(isinstance(entry, dict | list) for entry in value)
        return [_shape(entry, shapes) for entry in value] if nested else len(value)
    return None


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict | list):
        entries = value.values() if isinstance(value, dict) else value
        return [leaf for entry in entries for leaf in _leaves(entry)]
    return [value]


def _filled(shape: Any, shapes: Mapping[str, Any], leaves: Iterator[Any]) -> Any:
    if isinstance(shape, str):
        shape = shapes[shape]
    if isinstance(shape, dict):
        return {key: _filled(entry, shapes, leaves) for key, entry in shape.items()}
    if isinstance(shape, list):
        return [_filled(entry, shapes, leaves) for entry in shape]
    return next(leaves) if shape is None else [next(leaves) for _ in range(shape)]


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
