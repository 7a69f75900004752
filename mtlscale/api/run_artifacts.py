"""Pictures of a trained network: predictions beside the truth for maps and tags."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mtlscale.config import Run, Task, TaskSuite
from mtlscale.report.charts.prediction_grids import Maps, picture_chart
from mtlscale.report.charts.vega import save
from mtlscale.report.formats.tag_page import sentences_page

if TYPE_CHECKING:
    from torch import Tensor

    from mtlscale.training import Pictures, Trainer


def write(trainer: Trainer, folder: Path) -> None:
    """Write the predictions of a finished run on a few test samples, where its tasks have some to show."""
    pictures = trainer.pictures()
    if pictures is not None:
        draw(pictures, trainer.suite, trainer.run, folder / "pictures.png")
    if trainer.suite.per_token:
        write_sentences(trainer, folder / "predictions.html")


def draw(pictures: Pictures, suite: TaskSuite, run: Run, path: Path) -> None:
    """Draw predictions beside the truth; write nothing if no task has maps that can be shown."""
    maps = [_maps(task, *pictures.maps[task.name]) for task in suite.tasks if task.name in pictures.maps]
    drawable = [task_maps for task_maps in maps if task_maps is not None]
    if drawable:
        path.parent.mkdir(parents=True, exist_ok=True)
        title = f"{run.dataset}, {run.method}, seed {run.seed}"
        save([picture_chart(pictures.images.numpy(), drawable, title)], path)


def write_sentences(trainer: Trainer, path: Path) -> None:
    """Write the predicted tags of a few test sentences beside the true ones, as a page."""
    from mtlscale.training.tagged_text import tagged

    run = trainer.run
    sentences = tagged(trainer.session, trainer.suite, trainer.batches)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(sentences_page(f"{run.dataset}, {run.method}, seed {run.seed}", sentences), encoding="utf-8")


def _maps(task: Task, guess: Tensor, truth: Tensor) -> Maps | None:
    if task.loss == "cross_entropy":
        return Maps(task.name, "classes", guess.argmax(1).numpy(), truth.numpy(), task.classes)
    if task.loss == "cosine":
        return Maps(task.name, "normals", guess.double().numpy(), truth.double().numpy())
    if task.outputs == 1:
        guess = guess.sigmoid() if task.loss == "bce" else guess
        return Maps(task.name, "numbers", guess[:, 0].double().numpy(), truth[:, 0].double().numpy())
    return None
