"""MNIST: pictures of ten handwritten digits, as one task."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pipelines._formats.idx import idx_folder, read_idx
from pipelines._images.classification_images import PictureSet, SplitImages, numbered

STEMS = {"train": "train", "test": "t10k"}


class Mnist(PictureSet):
    """MNIST (LeCun et al. 1998) as it is: 60,000 digits for training and 10,000 for test, in three equal channels.

    The source has the four idx files, plain or .gz, also where torchvision keeps them (`MNIST/raw`); or it is a set of
    the `datasets` library, or pictures in `{train,test}/<digit>`. `ood` works as for cifar10. The ten tasks of TOMATO
    are in `mnist_mtl`.
    """

    name: ClassVar[str] = "mnist"
    source: ClassVar[str] = "LeCun, Cortes & Burges 1998"
    folder: ClassVar[str] = "mnist"
    official_names: ClassVar[tuple[str, ...]] = ("train-images-idx3-ubyte.gz",)
    shape: ClassVar[tuple[int, ...]] = (28, 28)
    classes: ClassVar[tuple[str, ...]] = tuple("0123456789")

    def official(self, source: Path) -> Path | None:
        if any(any(source.glob(f"{below}*-idx3-ubyte*")) for below in ("", "MNIST/raw/", "raw/")):
            return idx_folder(self.name, source, self._names())
        return None

    def _names(self) -> tuple[str, ...]:
        return tuple(f"{stem}-{kind}" for stem in STEMS.values() for kind in ("images-idx3-ubyte", "labels-idx1-ubyte"))

    def official_files(self) -> tuple[str, ...]:
        return tuple(f"{name}{end}" for name in self._names() for end in ("", ".gz"))

    def read(self, source: Path, part: str) -> SplitImages | None:
        folder = None if source.is_file() else self.official(source)
        if folder is None:
            return None
        images = read_idx(self.name, folder, f"{STEMS[part]}-images-idx3-ubyte", 3)
        labels = read_idx(self.name, folder, f"{STEMS[part]}-labels-idx1-ubyte", 1)
        return SplitImages(numbered(part, len(images)), labels, images)
