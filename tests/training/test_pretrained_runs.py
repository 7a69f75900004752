"""Whole runs on a pretrained model: frozen, aligned, tuned, adapted, and on its features."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checkpoints import write_checkpoint

from mtlscale.config import UserError, load_experiment
from mtlscale.data import load_prepared
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.torchvision_ops import declare
from mtlscale.training import train

declare()  # transformers imports torchvision
pytest.importorskip("transformers")
pytest.importorskip("peft")

FILE = """
datasets: [{{name: text, options: {{tasks: {{a: a.tsv, b: b.tsv}}, tokenizer: model, features: {features}}}}}]
methods: [{methods}]
seeds: [0]
floors: []
model: {{encoder: {{{encoder}}}}}
training: {{epochs: 1, batch_size: 16, lr: 1e-2}}
"""


def runs(tmp_path: Path, encoder: str, features: str, methods: str) -> Iterator[Any]:
    write_checkpoint(tmp_path / "model")
    for task in ("a", "b"):
        rows = [f"the {'good' if n % 2 else 'bad'} one {n:06b}{task}\t{'yes' if n % 2 else 'no'}" for n in range(60)]
        (tmp_path / f"{task}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    (tmp_path / "mine.yaml").write_text(FILE.format(encoder=encoder, features=features, methods=methods))
    experiment = load_experiment(tmp_path / "mine.yaml")
    data = load_prepared(prepare("text", experiment.datasets[0].options, tmp_path, tmp_path / "home"))
    for run in experiment.runs({"text": data.manifest.fingerprint}):
        yield train(run, data)


@pytest.mark.parametrize(
    ("encoder", "features", "methods"),
    [
        ("name: pretrained, checkpoint: model", "none", "stl, equal, aligned"),
        ("name: pretrained, checkpoint: model, tune: full", "none", "pcgrad"),
        ("name: pretrained, checkpoint: model, tune: lora, rank: 2", "none", "mgda"),
        ("name: mlp, hidden: []", "mean", "uncertainty"),
    ],
)
def test_methods_run_on_it(tmp_path: Path, encoder: str, features: str, methods: str) -> None:
    found = list(runs(tmp_path, encoder, features, methods))
    assert len(found) == len(methods.split(","))
    assert all(set(result.metrics["test"]) == {"a", "b"} for result in found)


def test_a_frozen_encoder_has_no_gradients_to_balance(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cagrad balances the tasks' gradients at what they share, and nothing of that"):
        list(runs(tmp_path, "name: pretrained, checkpoint: model", "none", "cagrad"))
