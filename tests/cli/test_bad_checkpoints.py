"""Folders of pretrained models that cannot be used, through the command line: one line, exit status 2, no run begun."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoints import needs_transformers, write_checkpoint
from command import mtlscale, refused

pytestmark = needs_transformers

EXPERIMENT = """\
datasets: [{name: text, options: {tasks: {a: a.tsv, b: b.tsv}, tokenizer: model}}]
methods: [stl, equal]
model: {encoder: {name: pretrained, checkpoint: damaged}}
"""
LONG = "the bads. " * 20


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An experiment on two tasks whose texts `model` prepares; the encoder is read from a copy of it, `damaged`."""
    for folder in ("model", "damaged"):
        write_checkpoint(tmp_path / folder)
    for task in ("a", "b"):
        rows = [f"the {'good' if n % 2 else 'bad'} one {n:06b}{task}\t{'yes' if n % 2 else 'no'}" for n in range(40)]
        rows[0] = f"{LONG}{task}\tyes"
        (tmp_path / f"{task}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    path = tmp_path / "mine.yaml"
    path.write_text(EXPERIMENT)
    return path


def without_tokenizer(folder: Path) -> None:
    for path in folder.glob("tokenizer*"):
        path.unlink()


def without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def cut_off(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def of_another_size(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": 20}))


def of_another_tokenizer(folder: Path) -> None:
    write_checkpoint(folder, padding=3)


def adapters_alone(folder: Path) -> None:
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')


WRONG: dict[Callable[[Path], None], str] = {
    without_tokenizer: "model.encoder.checkpoint: damaged has no tokenizer; save tokenizer.json beside config.json",
    without_weights: "model.encoder.checkpoint: damaged has no weights; save them as model.safetensors",
    pickled: "damaged has only pickled weights (pytorch_model.bin), which are never loaded; save them as",
    adapters_alone: "damaged holds adapters (adapter_config.json); merge them into the model and save that",
    cut_off: "damaged cannot be loaded (SafetensorError: ",
    of_another_size: "damaged: its weights have other shapes than config.json says; save the model again",
    of_another_tokenizer: "stl on text: pretrained: text was prepared with another tokenizer; prepare it with",
}


@pytest.mark.parametrize("damage", WRONG, ids=lambda damage: damage.__name__)
def test_a_model_that_cannot_be_used(damage: Callable[[Path], None], file: Path, tmp_path: Path) -> None:
    damage(tmp_path / "damaged")
    home = tmp_path / "home"
    messages = {refused(*command, file, "--home", home) for command in (["run"], ["run", "--dry-run"])}
    assert len(messages) == 1 and WRONG[damage] in messages.pop()
    assert not [path for path in home.rglob("*") if path.is_file() and "data" not in path.parts]


def test_a_model_that_is_not_named(file: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    for setting, message in (
        ("model.encoder.checkpoint=null", "pretrained: name a folder with a model: `checkpoint: FOLDER`"),
        ("model.encoder.checkpoint=nowhere", "nowhere does not exist beside the experiment or here; name a folder"),
        ("datasets.0.options.tokenizer=null", "text holds words of its own; prepare it with the option `tokenizer: "),
    ):
        assert message in refused("run", file, "--dry-run", "--home", home, "--set", setting)


def test_texts_that_are_too_long_are_cut_counted_and_told(file: Path, tmp_path: Path) -> None:
    options = ("--option", "tasks={a: a.tsv, b: b.tsv}", "--option", f"tokenizer={tmp_path / 'model'}")
    done = mtlscale("prepare", "text", "--source", tmp_path, "--home", tmp_path / "home", *options)
    assert done.code == 0, done.stderr
    assert "texts_cut: {'a': 1, 'b': 1}" in done.stdout and "tokens_kept: 32" in done.stdout
    without_tokenizer(tmp_path / "model")
    assert "has no tokenizer" in refused("prepare", "text", "--source", tmp_path, "--home", tmp_path / "home", *options)
