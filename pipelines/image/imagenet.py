"""ImageNet, or other pictures with one folder per class."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from mtlscale.config import Task, TaskSuite, UserError, knob
from mtlscale.data.sampling.splits import carve_validation, uniform_hash
from pipelines._images.indexed_images import DecodedColumn, Files, ImagePipeline, Row, index_table, prepared_images
from pipelines._images.pixels import picture
from pipelines.contract import PrepareContext, Prepared

TASK = "class"
_IMAGE = re.compile(r"(?:^|/)(train|val)/([^/]+)/([^/]+)\.(?:jpe?g|png)$", re.IGNORECASE)


class ImageNet(ImagePipeline):
    """ImageNet (ILSVRC 2012): the class of a picture scaled to size x size pixels.

    The source has `train/<class>/<picture>` and `val/<class>/<picture>`, extracted or in zips or plain tars. The
    official validation part is the test part; `validation` is the share of train that is held out by a hash of the
    name. The classes are the folders of train in alphabetical order, so other sets in such folders, and subsets of this
    one, work as well.
    """

    name: ClassVar[str] = "imagenet"
    results_version: ClassVar[int] = 2  # 2: pictures are turned as their Exif says, transparency is on white
    source: ClassVar[str] = "Russakovsky et al., IJCV 2015; image-net.org"
    folder: ClassVar[str] = "imagenet"

    size: int = knob(224, low=8, high=1024, help="pixels of height and width")
    validation: float = knob(0.02, low=0.0, high=0.9, open_low=True, help="share of train that is held out")
    split: int = knob(0, low=0, help="which random validation part")

    def selects(self, name: str) -> bool:
        return bool(_IMAGE.search(name))

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        assert source is not None
        store = self.store(source)
        # part -> id, class, name of the file
        images_of: dict[str, list[tuple[str, str, str]]] = {"train": [], "val": []}
        for name in store.names:
            match = _IMAGE.search(name)
            assert match is not None
            images_of[match[1].lower()].append((f"{match[1].lower()}/{match[2]}/{match[3]}", match[2], name))

        for part, images in images_of.items():
            if not images:
                raise UserError(f"{self.name}: {source} has no {part}/<class>/<picture>, extracted, in a zip or a tar")

        classes = sorted({label for _, label, _ in images_of["train"]})
        untrained_class = next((label for _, label, _ in images_of["val"] if label not in classes), None)
        if untrained_class is not None or len(classes) < 2:
            problem = (
                f"class {untrained_class} of val has no picture in train"
                if untrained_class
                else "train has one class alone"
            )
            raise UserError(f"{self.name}: {problem} of {source}; it wants train/<class>/<picture> for each")

        rows, labels = [], []
        for part, images in images_of.items():
            if self.limit:  # choose by hash, since names are in the order of classes
                images = sorted(images, key=lambda image: uniform_hash(image[0], f"{self.name}/limit"))[: self.limit]
            for id, label, name in images:
                salt = f"{self.name}/{self.split}"
                split = "test" if part == "val" else carve_validation(id, self.validation, salt)
                rows.append({"id": id, "split": split, "image": store.location(name)})
                labels.append(classes.index(label))

        index = index_table(rows, ["image"]).append_column(f"target.{TASK}", pa.array(np.array(labels, np.int16)))
        shape = (3, self.size, self.size)

        suite = TaskSuite(
            name=self.name,
            tasks=(
                Task(
                    name=TASK,
                    loss="cross_entropy",
                    outputs=len(classes),
                    metrics=("accuracy",),
                    classes=tuple(classes),
                ),
            ),
            inputs="shared",
            input_kind="image",
            input_shape=shape,
        )

        decode = partial(decode_picture, size=self.size)
        columns = {"input": DecodedColumn("uint8", shape)}
        return prepared_images(suite, index, decode, columns, str(store.root), [], context, self.encoded_modality)


def decode_picture(row: Row, files: Files, size: int) -> dict[str, np.ndarray]:
    """Decode one picture to size x size pixels."""
    return {"input": picture(files("image"), (size, size))[0]}
