"""SVHN: Street View House Numbers, cut out as single digits."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from mtlscale.config import UserError
from pipelines._formats.mat import read_mat
from pipelines._images.classification_images import PictureSet, SplitImages, numbered

OFFICIAL_SPLITS = ("train", "test")


class Svhn(PictureSet):
    """SVHN (Netzer et al. 2011), format 2: 73,257 digits for training and 26,032 for test, 32x32 pixels.

    The source has `train_32x32.mat` and `test_32x32.mat`, where a 0 has the label 10; or it is a set of the `datasets`
    library (`hf:ufldl-stanford/svhn:cropped_digits`), or pictures in `{train,test}/<digit>`. `ood` works as for
    cifar10.
    """

    name: ClassVar[str] = "svhn"
    source: ClassVar[str] = "Netzer et al. 2011; ufldl.stanford.edu/housenumbers"
    folder: ClassVar[str] = "svhn"
    official_names: ClassVar[tuple[str, ...]] = ("train_32x32.mat",)
    shape: ClassVar[tuple[int, ...]] = (32, 32, 3)
    classes: ClassVar[tuple[str, ...]] = tuple("0123456789")

    def official(self, source: Path) -> Path | None:
        return source if any((source / name).is_file() for name in self.official_files()) else None

    def official_files(self) -> tuple[str, ...]:
        return tuple(f"{part}_32x32.mat" for part in OFFICIAL_SPLITS)

    def read(self, source: Path, part: str) -> SplitImages | None:
        if self.official(source) is None:
            return None

        path = source / f"{part}_32x32.mat"
        if not path.is_file():
            raise UserError(f"svhn: {path.name} is missing in {source}; fetch it")
        try:
            content = read_mat(path)
        except ValueError as error:
            raise UserError(f"svhn: {path.name} is damaged ({error}); fetch it again") from None

        pictures, labels = (content.get(key) for key in ("X", "y"))
        if not isinstance(pictures, np.ndarray) or pictures.ndim != 4 or pictures.dtype != np.uint8 or labels is None:
            raise UserError(f"svhn: {path.name} has no X of bytes [32, 32, 3, N] with labels y; fetch it again")

        digits = np.asarray(labels).reshape(-1).astype(np.int64)
        return SplitImages(
            numbered(part, pictures.shape[3]), np.where(digits == 10, 0, digits), np.moveaxis(pictures, 3, 0)
        )
