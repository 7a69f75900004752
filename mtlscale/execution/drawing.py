"""A trained network's predictions beside the truth: a picture where tasks have maps, a page where they have tags."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mtlscale.report.canvas import save
from mtlscale.report.pictures import Maps, picture_figure
from mtlscale.report.sentences import sentences_page
from mtlscale.spec import Run, Task, TaskSuite

if TYPE_CHECKING:
    from torch import Tensor

    from mtlscale.training import Pictures, Trainer


def draw(pictures: Pictures, suite: TaskSuite, run: Run, path: Path) -> None:
    """Predictions beside truth; nothing where no task has maps that can be shown."""
    maps = [_maps(task, *pictures.maps[task.name]) for task in suite.tasks if task.name in pictures.maps]
    shown = [one for one in maps if one is not None]
    if shown:
        path.parent.mkdir(parents=True, exist_ok=True)
        save(picture_figure(pictures.images.numpy(), shown, f"{run.dataset}, {run.method}, seed {run.seed}"), path)


def write_sentences(trainer: Trainer, path: Path) -> None:
    """Tags of a few test sentences beside the true ones, as a page."""
    from mtlscale.training.tagged import tagged

    run = trainer.run
    found = tagged(trainer.session, trainer.suite, trainer.batches)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(sentences_page(f"{run.dataset}, {run.method}, seed {run.seed}", found), encoding="utf-8")


def _maps(task: Task, guess: Tensor, truth: Tensor) -> Maps | None:
    if task.loss == "cross_entropy":
        return Maps(task.name, "classes", guess.argmax(1).numpy(), truth.numpy(), task.classes)
    if task.loss == "cosine":
        return Maps(task.name, "normals", guess.double().numpy(), truth.double().numpy())
    if task.outputs == 1:
        guess = guess.sigmoid() if task.loss == "bce" else guess
        return Maps(task.name, "numbers", guess[:, 0].double().numpy(), truth[:, 0].double().numpy())
    return None
