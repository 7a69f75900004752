"""MNIST as ten one-against-rest tasks on principal components (TOMATO's MNIST-MTL)."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from mtlscale.config import Task, TaskSuite, UserError, knob
from pipelines._formats.hub import HubFolder, is_hub_folder
from pipelines._formats.idx import idx_folder, read_idx
from pipelines._images.hub_images import labelled_images
from pipelines._steps.features import one_against_rest, vector_tables
from pipelines.contract import Pipeline, PrepareContext, Prepared

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


class MnistMtl(Pipeline):
    """MNIST: is it this digit? Ten binary tasks of 1,800 images on 64 principal components.

    Task `digit3` has `positives` images of a 3 and `negatives` of each other digit, out of the 60,000 of MNIST's own
    training part; no image is in two tasks. The PCA is fitted on the training images of all tasks. The source has idx
    files, plain or .gz, also where torchvision keeps them (`MNIST/raw`); or it is a set of the `datasets` library whose
    split train has the columns image and label.
    """

    name: ClassVar[str] = "mnist_mtl"
    source: ClassVar[str] = "LeCun, Cortes & Burges 1998; as in Zhang & Lee, CIKM 2020, table 2"
    folder: ClassVar[str] = "mnist"
    without_floors: ClassVar[tuple[str, ...]] = ()
    hub: ClassVar[bool] = True

    positives: int = knob(900, low=2, high=7000, help="images of the task's digit")
    negatives: int = knob(100, low=1, high=7000, help="images of each other digit in a task")
    components: int = knob(64, low=1, high=784, help="principal components")
    split: int = knob(0, low=0, help="which random split")

    def locate(self, source: Path) -> Path:
        """Return the folder of the idx files, or the one that the `datasets` library wrote."""
        if is_hub_folder(source):
            return source
        return idx_folder(self.name, source, (IMAGES, LABELS))

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        assert source is not None
        if is_hub_folder(source):
            images, labels = labelled_images(HubFolder(self.name, source), "train", (28, 28))
        else:
            images, labels = read_idx(self.name, source, IMAGES, 3), read_idx(self.name, source, LABELS, 1)

        if len(images) != len(labels):
            raise UserError(f"mnist_mtl: {len(images)} images but {len(labels)} labels in {source}; fetch them again")

        tasks = one_against_rest(
            self.name,
            images.reshape(len(images), -1) / 255.0,
            labels,
            {f"digit{digit}": digit for digit in range(10)},
            positives=self.positives,
            negatives=self.negatives,
            components=self.components,
            split=self.split,
        )

        suite = TaskSuite(
            name=self.name,
            tasks=tuple(
                Task(name=task, loss="cross_entropy", outputs=2, metrics=("error",), classes=("rest", task[-1]))
                for task in tasks
            ),
            inputs="per_task",
            input_kind="vector",
            input_shape=(self.components,),
        )

        return Prepared(suite, vector_tables(tasks))
