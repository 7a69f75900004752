"""Small pictures with one class each, such as CIFAR: one task and, on demand, a set without labels beside it.

The whole set is held in memory: 60,000 pictures of 32x32 pixels take 184 MB.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from mtlscale.config import SPLITS, Task, TaskSuite, UserError, build, knob
from mtlscale.data.sampling.splits import carve_validation, uniform_hash
from mtlscale.data.tables.raw_files import is_hidden
from pipelines._engine.fingerprint import content, ends, holds_labels
from pipelines._formats.archive import read_members
from pipelines._formats.hub import HubFolder, is_hub_folder
from pipelines._images.hub_images import labelled_images
from pipelines._images.pixels import BadImage, picture, resize_colour
from pipelines.contract import Pipeline, PrepareContext, Prepared

TASK, OOD = "class", "ood"  # streams
SETS = ("cifar10", "cifar100", "mnist", "svhn")
NO_OOD = "none"
OFFICIAL_SPLITS = ("train", "test")
_PICTURE = re.compile(r"(?:^|/)(train|test|val|valid|validation)/([^/]+)/([^/]+)\.(?:png|jpe?g|bmp|ppm|webp)$", re.I)


@dataclass
class SplitImages:
    """The pictures of train or test: arrays of bytes [H, W] or [H, W, 3], or encoded as in their files."""

    ids: list[str]
    labels: Sequence[int] | np.ndarray
    pictures: Sequence[np.ndarray | bytes] | np.ndarray


@dataclass
class SampledImages:
    """The drawn pictures of a part in one shape.

    Attributes:
        ids: [N].
        labels: [N].
        pixels: Bytes [N, 3, size, size].
        sizes: The original (height, width) of the pictures.
        gray: Whether some picture was gray.
    """

    ids: np.ndarray
    labels: np.ndarray
    pixels: np.ndarray
    sizes: set[tuple[int, int]] = field(default_factory=set)
    gray: bool = False


class PictureSet(Pipeline):
    """Pipeline of one task, the class of a small picture.

    Pictures are resized to image_size x image_size (Pillow's antialiased bilinear filter); gray becomes three equal
    channels. A share of train is held out for validation by a hash of the id.
    """

    shape: ClassVar[tuple[int, ...]]  # of the official pictures: height, width and, for colour, 3
    classes: ClassVar[tuple[str, ...]] = ()
    official_names: ClassVar[tuple[str, ...]] = ()  # folders or files that identify its official form
    hub: ClassVar[bool] = True

    image_size: int = knob(32, low=8, high=256, help="pixels of height and width")
    validation: float = knob(0.1, low=0.0, high=0.9, open_low=True, help="share of train that is held out")
    split: int = knob(0, low=0, help="which random validation part")
    limit: int = knob(0, low=0, high=1e9, help="so many pictures of train and of test, drawn by hash; 0: all")
    ood: str = knob(
        NO_OOD, choices=(NO_OOD, *SETS), help="a set whose pictures, without labels, are the stream `ood` beside it"
    )
    ood_limit: int = knob(0, low=0, high=1e9, help="so many of its pictures of train and of test; 0: all")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ood == self.name:
            raise UserError(
                f"{self.name}: ood = {self.ood} is the set itself, which is not out of its distribution; choose another"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes."""
        return self.classes

    @property
    def hub_labels(self) -> tuple[str, ...]:
        """The possible names of the column of labels in a set of the `datasets` library."""
        return ("label", "labels", "fine_label", "target")

    def official(self, source: Path) -> Path | None:
        """Return the folder with the official files at or in `source`; None if there is none."""
        raise NotImplementedError

    def official_files(self) -> tuple[str, ...]:
        """Return the official files that are read, for the fingerprint."""
        raise NotImplementedError

    def read(self, source: Path, part: str) -> SplitImages | None:
        """Return a part of the official files in the folder or the archive; None if it has no such files."""
        raise NotImplementedError

    # -- the source ------------------------------------------------------------------------------------------------

    def locate(self, source: Path) -> Path:
        """Return the official files, the archive, the class folders or the only zip at or in `source`."""
        if not source.exists():
            raise UserError(f"{self.name}: source {source} does not exist; pass --source with its folder or archive")
        if source.is_file() or is_hub_folder(source):
            return source

        archive = next((source / name for name in self.archives if (source / name).is_file()), None)
        located = self.official(source) or archive
        if located is None and any((source / part).is_dir() for part in OFFICIAL_SPLITS):
            located = source
        if located is None:
            zips = sorted(source.glob("*.zip"))
            located = zips[0] if len(zips) == 1 else None
        if located is None:
            raise UserError(
                f"{self.name}: {source} has neither {' nor '.join([*self.official_names[:1], *self.archives])}, nor "
                "pictures in train/<class> and test/<class>"
            )

        return located

    def source_fingerprint(self, located: Path | None) -> str:
        """Return a hash of the set's files and of those of the out-of-distribution set."""
        assert located is not None
        own_hash = self._own_fingerprint(located)
        if self.ood == NO_OOD:
            return own_hash

        ood_set, ood_source = self._out_of_distribution(located)
        ood_hash = ood_set._own_fingerprint(ood_source)
        if ood_hash == own_hash:
            raise UserError(
                f"{self.name}: {ood_source} holds the same files as {located}; pass {self.ood}'s own as ood"
            )
        return hashlib.sha256(f"{own_hash}\0{ood_hash}".encode()).hexdigest()

    def _own_fingerprint(self, located: Path) -> str:
        if located.is_file():
            return content(located)
        if is_hub_folder(located):
            return HubFolder(self.name, located).fingerprint()

        digest = hashlib.sha256()
        for path in sorted(path for path in located.rglob("*") if path.is_file()):
            name, size = path.relative_to(located).as_posix(), path.stat().st_size
            if is_hidden(name):
                continue
            content_hash = ends(path) if path.name in self.official_files() or holds_labels(name, size) else ""
            digest.update(f"{name}\0{size}\0{content_hash}\n".encode())
        return digest.hexdigest()

    def _out_of_distribution(self, located: Path) -> tuple[PictureSet, Path]:
        """Return the out-of-distribution set in this one's sizes, and its files below $MTLSCALE_DATA or the source."""
        ood_set: PictureSet = build("datasets", self.ood, {"image_size": self.image_size, "limit": self.ood_limit})
        data_folders = [Path(os.environ["MTLSCALE_DATA"])] if os.environ.get("MTLSCALE_DATA") else []
        for folder in (*data_folders, *list(located.absolute().parents)[:2]):
            if (folder / ood_set.folder).is_dir():
                return ood_set, ood_set.locate(folder / ood_set.folder)
        raise UserError(
            f"{self.name}: ood = {self.ood} needs its files: a folder {ood_set.folder} below $MTLSCALE_DATA, or beside "
            f"{located.name}"
        )

    # -- preparing -------------------------------------------------------------------------------------------------

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        """Return the suite and the tables of the set, with the stream `ood` on demand."""
        assert source is not None
        problems: list[tuple[str, str]] = []
        tables: dict[str, dict[str, pa.Table]] = {split: {} for split in SPLITS}
        notes: dict[str, Any] = {}

        train = self._fill(tables, TASK, source, context, problems, notes)
        if self.ood != NO_OOD:
            ood_set, ood_source = self._out_of_distribution(source)
            labelled_set = self.name, self.validation, self.split
            ood_set._fill(tables, OOD, ood_source, context, problems, notes, labelled_set)

        notes |= context.settle(problems, "pictures")
        mean, std = _statistics(train)

        names = self.names
        suite = TaskSuite(
            name=self.name,
            tasks=(Task(name=TASK, loss="cross_entropy", outputs=len(names), metrics=("accuracy",), classes=names),),
            inputs="per_task",
            input_kind="image",
            input_shape=(3, self.image_size, self.image_size),
            unlabelled=() if self.ood == NO_OOD else (OOD,),
            extras={"mean": mean, "std": std},
        )

        return Prepared(suite, tables, notes=notes)

    def _fill(
        self,
        tables: dict[str, dict[str, pa.Table]],
        stream: str,
        source: Path,
        context: PrepareContext,
        problems: list[tuple[str, str]],
        notes: dict[str, Any],
        of: tuple[str, float, int] | None = None,
    ) -> np.ndarray:
        """Fill in the stream's tables, problems and notes, and return its pictures in train."""
        # `of`: name, held-out share and split number of the set that an unlabelled stream stands beside.
        _, share, split = of or (self.name, self.validation, self.split)
        sizes: set[tuple[int, int]] = set()
        gray = False

        for part in OFFICIAL_SPLITS:
            drawn = self._draw(source, part, context, problems)
            sizes |= drawn.sizes
            gray |= drawn.gray
            ids = np.array([id if of is None else f"{OOD}/{self.name}/{id}" for id in drawn.ids], object)

            if part == "test":
                rows = {"test": np.arange(len(ids))}
            else:
                is_validation = np.array(
                    [carve_validation(id, share, f"{self.name}/{split}") == "val" for id in ids], bool
                )
                rows = {"train": np.flatnonzero(~is_validation), "val": np.flatnonzero(is_validation)}
                train = drawn.pixels[rows["train"]]

            for name, chosen in rows.items():
                labels = drawn.labels[chosen] if of is None else None
                tables[name][stream] = _table(ids[chosen], drawn.pixels[chosen], labels)

        changed = sizes != {(self.image_size,) * 2}
        if changed or gray:
            original_sizes = ", ".join(f"{height}x{width}" for height, width in sorted(sizes)[:3])
            original_sizes += " and others" * (len(sizes) > 3) + " gray" * gray
            key = "pictures" if of is None else f"ood ({self.name})"
            notes[key] = f"{original_sizes} made {self.image_size}x{self.image_size} in colour"

        return train

    def _draw(self, source: Path, part: str, context: PrepareContext, problems: list[tuple[str, str]]) -> SampledImages:
        """Return a part in one shape, limited to the wanted number of pictures."""
        pictures = self._split_images(source, part)
        labels = np.asarray(pictures.labels, np.int64)
        chosen = np.arange(len(pictures.ids))
        if self.limit and len(chosen) > self.limit:
            hashes = np.array([uniform_hash(id, f"{self.name}/limit") for id in pictures.ids])
            chosen = np.sort(np.argsort(hashes, kind="stable")[: self.limit])

        pixels = np.empty((len(chosen), 3, self.image_size, self.image_size), np.uint8)
        usable, sizes, gray, size = [], set(), False, (self.image_size, self.image_size)

        for position, row in enumerate(chosen.tolist()):
            original = pictures.pictures[row]

            try:
                if isinstance(original, bytes):
                    pixels[position], original_size = picture(original, size)
                else:
                    gray |= original.ndim == 2
                    colour = np.repeat(original[..., None], 3, -1) if original.ndim == 2 else original
                    pixels[position], original_size = (
                        resize_colour(colour, size),
                        (original.shape[0], original.shape[1]),
                    )
            except BadImage as error:
                problems.append((pictures.ids[row], str(error)))
                continue

            usable.append(position)
            sizes.add(original_size)
            if position % context.rows_per_block == 0:
                context.progress(f"read {self.name}", position, len(chosen))

        ids = np.array(pictures.ids, object)[chosen]
        return SampledImages(ids[usable], labels[chosen][usable], pixels[usable], sizes, gray)

    def _split_images(self, source: Path, part: str) -> SplitImages:
        """Return the part in whichever of the supported layouts the source has."""
        if is_hub_folder(source):
            pixels, labels = labelled_images(HubFolder(self.name, source), part, self.shape, self.hub_labels)
            loaded: SplitImages | None = SplitImages(numbered(part, len(pixels)), labels, pixels)
        else:
            loaded = self.read(source, part) or self._class_folders(source, part)

        if loaded is None or not len(loaded.ids):
            raise UserError(f"{self.name}: {source} has no pictures of {part}; pass the folder of the whole set")
        if len(loaded.labels) != len(loaded.ids):
            raise UserError(f"{self.name}: {len(loaded.ids)} pictures but {len(loaded.labels)} labels of {part} in "
                            f"{source}; fetch them again")  # fmt: skip

        labels = np.asarray(loaded.labels)
        if labels.min() < 0 or labels.max() >= len(self.names):
            bad_class = int(labels.min() if labels.min() < 0 else labels.max())
            raise UserError(f"{self.name}: {source} has the class {bad_class} in {part}; there are 0 to "
                            f"{len(self.names) - 1}; fetch it again")  # fmt: skip

        return loaded

    def _class_folders(self, source: Path, part: str) -> SplitImages | None:
        """Return the pictures of `{train,test}/<class>/<picture>` below a folder or in an archive; val can be test."""

        def wanted_file(name: str) -> bool:
            match = _PICTURE.search(name)
            return match is not None and (match[1].lower() == "train") == (part == "train")

        by_part: dict[str, list[tuple[str, str, bytes]]] = {}  # part -> class, id, picture
        for name, raw in sorted(read_members(source, wanted_file)):
            match = _PICTURE.search(name)
            assert match is not None
            folder_part = match[1].lower()
            by_part.setdefault(folder_part, []).append((match[2], f"{match[2]}/{match[3]}", raw))

        chosen_part = part if part in by_part else next(iter(sorted(by_part)), part)
        if chosen_part not in by_part:
            return None

        folders = sorted({name for name, _, _ in by_part[chosen_part]})
        # Without known class names, the classes are the folders in alphabetical order.
        class_names = self.names if set(self.names) >= set(folders) else tuple(folders)
        if len(folders) != len(self.names) or len(class_names) != len(self.names):
            missing = [name for name in self.names if name not in folders]
            problem = f"class {missing[0]} has no picture in {chosen_part}" if set(folders) < set(self.names) else (
                f"{chosen_part} has {len(folders)} classes instead of {len(self.names)}"
            )  # fmt: skip
            raise UserError(f"{self.name}: {problem} of {source}; it wants {chosen_part}/<class>/<picture> for each")

        number = {name: index for index, name in enumerate(class_names)}
        rows = by_part[chosen_part]
        return SplitImages(
            [f"{part}/{id}" for _, id, _ in rows], [number[name] for name, _, _ in rows], [r for *_, r in rows]
        )


def numbered(part: str, count: int, start: int = 0) -> list[str]:
    """Return ids for pictures that have no name."""
    return [f"{part}/{row:06d}" for row in range(start, start + count)]


def _table(ids: np.ndarray, pixels: np.ndarray, labels: np.ndarray | None) -> pa.Table:
    flat = np.ascontiguousarray(pixels).reshape(-1)
    columns = {
        "id": pa.array(ids.tolist(), pa.string()),
        "input": pa.FixedSizeListArray.from_arrays(pa.array(flat), int(np.prod(pixels.shape[1:]))),
    }
    if labels is not None:
        columns[f"target.{TASK}"] = pa.array(labels.astype(np.int16))
    return pa.table(columns)


def _statistics(pixels: np.ndarray) -> tuple[list[float], list[float]]:
    """Return the mean and deviation of each channel [N, 3, H, W], 0..255, exact integers up to the last step."""
    count = max(1, pixels.size // 3)
    sums = [int(pixels[:, channel].sum(dtype=np.int64)) for channel in range(3)]
    squares = [sum(int(np.square(part, dtype=np.int64).sum()) for part in pixels[:, channel]) for channel in range(3)]
    variances = [(count * square - total**2) / count**2 for total, square in zip(sums, squares, strict=True)]
    return [total / count for total in sums], [variance**0.5 for variance in variances]
