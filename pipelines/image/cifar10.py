"""CIFAR-10: ten classes of small pictures."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from mtlscale.config import UserError
from pipelines._formats.cifar import BINARY, contents, holds, records
from pipelines._images.classification_images import PictureSet, SplitImages, numbered

BATCHES = {"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)}
_ALL = tuple(name for part in BATCHES.values() for name in part)
FOLDERS = ("cifar-10-batches-bin", "cifar-10-batches-py")


class Cifar10(PictureSet):
    """CIFAR-10 (Krizhevsky 2009): 50,000 pictures of ten classes for training and 10,000 for test, 32x32 pixels.

    The source is the official binary version (`cifar-10-batches-bin` or its archive), a set of the `datasets` library,
    or pictures in `{train,test}/<class>`, as a folder or a zip; torchvision's pickles are refused. `ood` adds the
    pictures of another set without their labels, in the same shape, as a stream `ood`: those of its train part in train
    and val, those of its test part in test.
    """

    name: ClassVar[str] = "cifar10"
    source: ClassVar[str] = "Krizhevsky 2009; www.cs.toronto.edu/~kriz/cifar.html"
    folder: ClassVar[str] = "cifar10"
    archives: ClassVar[tuple[str, ...]] = ("cifar-10-binary.tar.gz",)
    official_names: ClassVar[tuple[str, ...]] = FOLDERS
    shape: ClassVar[tuple[int, ...]] = (32, 32, 3)
    classes: ClassVar[tuple[str, ...]] = (
        "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
    )  # fmt: skip

    def official(self, source: Path) -> Path | None:
        return next((folder for name in ("", *FOLDERS) if holds(folder := source / name, _ALL)), None)

    def official_files(self) -> tuple[str, ...]:
        return tuple(f"{name}{BINARY}" for name in _ALL)

    def read(self, source: Path, part: str) -> SplitImages | None:
        files = contents(self.name, source, _ALL)
        if not files:
            return None

        parts = []
        for batch in BATCHES[part]:
            if batch not in files:
                raise UserError(f"{self.name}: {batch}{BINARY} is missing in {source}; fetch it again")
            parts.append(records(self.name, f"{batch}{BINARY}", files[batch], 1))

        labels, pictures = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return SplitImages(numbered(part, len(labels)), labels.reshape(-1), pictures)
