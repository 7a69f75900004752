"""Small pictures with one class each, CIFAR and its like: one task, and a set without labels beside it on demand.

All of it is held in memory: 60,000 pictures of 32x32 pixels take 184 MB.
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

from mtlscale.data.splits import carve_validation, uniform_hash
from mtlscale.spec import SPLITS, Task, TaskSuite, UserError, build, knob
from pipelines._archive import read_members
from pipelines._base import Pipeline, Prepared, Work
from pipelines._fingerprint import content, ends, holds_labels
from pipelines._hub import HubFolder, is_hub_folder
from pipelines._hub_images import labelled_images
from pipelines._pixels import BadImage, picture, resize_colour

TASK, OOD = "class", "ood"  # streams
SETS = ("cifar10", "cifar100", "mnist", "svhn")
NO_OOD = "none"
PARTS = ("train", "test")
_PICTURE = re.compile(r"(?:^|/)(train|test|val|valid|validation)/([^/]+)/([^/]+)\.(?:png|jpe?g|bmp|ppm|webp)$", re.I)


@dataclass
class Part:
    """The pictures of train or test: arrays [H, W] or [H, W, 3] of bytes, or encoded as their files have them."""

    ids: list[str]
    labels: Sequence[int] | np.ndarray
    pictures: Sequence[np.ndarray | bytes] | np.ndarray


@dataclass
class Drawn:
    """The same in one shape: bytes [N, 3, size, size]. sizes: (height, width) that they had."""

    ids: np.ndarray
    labels: np.ndarray
    pixels: np.ndarray
    sizes: set[tuple[int, int]] = field(default_factory=set)
    gray: bool = False


class PictureSet(Pipeline):
    """A pipeline of one task, the class of a small picture.

    Pictures are resized to image_size x image_size (Pillow's antialiased bilinear filter), gray becomes three equal
    channels. A share of train is held out for validation by a hash of the id.
    """

    shape: ClassVar[tuple[int, ...]]  # of the official pictures: height, width and, of colour, 3
    classes: ClassVar[tuple[str, ...]] = ()
    official_names: ClassVar[tuple[str, ...]] = ()  # folders or files by which its official form is known
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
        """Of the classes."""
        return self.classes

    @property
    def hub_labels(self) -> tuple[str, ...]:
        return ("label", "labels", "fine_label", "target")

    def official(self, source: Path) -> Path | None:
        """The folder with the official files that `source` is or holds; None where there is none."""
        raise NotImplementedError

    def official_files(self) -> tuple[str, ...]:
        """The official files that are read, for the fingerprint."""
        raise NotImplementedError

    def read(self, source: Path, part: str) -> Part | None:
        """A part of the official files in the folder, or the archive; None where it holds no such files."""
        raise NotImplementedError

    # -- the source ------------------------------------------------------------------------------------------------

    def locate(self, source: Path) -> Path:
        if not source.exists():
            raise UserError(f"{self.name}: source {source} does not exist; pass --source with its folder or archive")
        if source.is_file() or is_hub_folder(source):
            return source
        archive = next((source / name for name in self.archives if (source / name).is_file()), None)
        found = self.official(source) or archive
        if found is None and any((source / part).is_dir() for part in PARTS):
            found = source
        if found is None:
            zips = sorted(source.glob("*.zip"))
            found = zips[0] if len(zips) == 1 else None
        if found is None:
            raise UserError(
                f"{self.name}: {source} has neither {' nor '.join([*self.official_names[:1], *self.archives])}, nor "
                "pictures in train/<class> and test/<class>"
            )
        return found

    def source_fingerprint(self, located: Path | None) -> str:
        """Of its files, and of those of the set out of its distribution."""
        assert located is not None
        own = self._own_fingerprint(located)
        if self.ood == NO_OOD:
            return own
        other, place = self._other(located)
        theirs = other._own_fingerprint(place)
        if theirs == own:
            raise UserError(f"{self.name}: {place} holds the same files as {located}; pass {self.ood}'s own as ood")
        return hashlib.sha256(f"{own}\0{theirs}".encode()).hexdigest()

    def _own_fingerprint(self, located: Path) -> str:
        if located.is_file():
            return content(located)
        if is_hub_folder(located):
            return HubFolder(self.name, located).fingerprint()
        digest = hashlib.sha256()
        for path in sorted(path for path in located.rglob("*") if path.is_file()):
            name, size = path.relative_to(located).as_posix(), path.stat().st_size
            told = ends(path) if path.name in self.official_files() or holds_labels(name, size) else ""
            digest.update(f"{name}\0{size}\0{told}\n".encode())
        return digest.hexdigest()

    def _other(self, located: Path) -> tuple[PictureSet, Path]:
        """The set out of the distribution, in these sizes, and where its files are: its folder below `$MTLSCALE_DATA`,
        or beside the source."""
        other: PictureSet = build("datasets", self.ood, {"image_size": self.image_size, "limit": self.ood_limit})
        above = [Path(os.environ["MTLSCALE_DATA"])] if os.environ.get("MTLSCALE_DATA") else []
        for folder in (*above, *list(located.absolute().parents)[:2]):
            if (folder / other.folder).is_dir():
                return other, other.locate(folder / other.folder)
        raise UserError(
            f"{self.name}: ood = {self.ood} needs its files: a folder {other.folder} below $MTLSCALE_DATA, or beside "
            f"{located.name}"
        )

    # -- preparing -------------------------------------------------------------------------------------------------

    def prepare(self, source: Path | None, work: Work) -> Prepared:
        assert source is not None
        problems: list[tuple[str, str]] = []
        tables: dict[str, dict[str, pa.Table]] = {split: {} for split in SPLITS}
        notes: dict[str, Any] = {}
        train = self._fill(tables, TASK, source, work, problems, notes)
        if self.ood != NO_OOD:
            other, place = self._other(source)
            mine = self.name, self.validation, self.split
            other._fill(tables, OOD, place, work, problems, notes, mine)
        notes |= work.settle(problems, "pictures")
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
        work: Work,
        problems: list[tuple[str, str]],
        notes: dict[str, Any],
        of: tuple[str, float, int] | None = None,
    ) -> np.ndarray:
        """The stream's tables; its pictures in train. of: name, share held out and split of the set it stands beside,
        where it is that without labels."""
        _, share, split = of or (self.name, self.validation, self.split)
        sizes: set[tuple[int, int]] = set()
        gray = False
        for part in PARTS:
            drawn = self._draw(source, part, work, problems)
            sizes |= drawn.sizes
            gray |= drawn.gray
            ids = np.array([id if of is None else f"{OOD}/{self.name}/{id}" for id in drawn.ids], object)
            if part == "test":
                rows = {"test": np.arange(len(ids))}
            else:
                held = np.array([carve_validation(id, share, f"{self.name}/{split}") == "val" for id in ids], bool)
                rows = {"train": np.flatnonzero(~held), "val": np.flatnonzero(held)}
                train = drawn.pixels[rows["train"]]
            for name, chosen in rows.items():
                labels = drawn.labels[chosen] if of is None else None
                tables[name][stream] = _table(ids[chosen], drawn.pixels[chosen], labels)
        changed = sizes != {(self.image_size,) * 2}
        if changed or gray:
            found = ", ".join(f"{height}x{width}" for height, width in sorted(sizes)[:3])
            found += " and others" * (len(sizes) > 3) + " gray" * gray
            key = "pictures" if of is None else f"ood ({self.name})"
            notes[key] = f"{found} made {self.image_size}x{self.image_size} in colour"
        return train

    def _draw(self, source: Path, part: str, work: Work, problems: list[tuple[str, str]]) -> Drawn:
        """A part in one shape, of as many pictures as are wanted."""
        found = self._part(source, part)
        labels = np.asarray(found.labels, np.int64)
        chosen = np.arange(len(found.ids))
        if self.limit and len(chosen) > self.limit:
            hashes = np.array([uniform_hash(id, f"{self.name}/limit") for id in found.ids])
            chosen = np.sort(np.argsort(hashes, kind="stable")[: self.limit])
        pixels = np.empty((len(chosen), 3, self.image_size, self.image_size), np.uint8)
        kept, sizes, gray, size = [], set(), False, (self.image_size, self.image_size)
        for place, row in enumerate(chosen.tolist()):
            given = found.pictures[row]
            try:
                if isinstance(given, bytes):
                    pixels[place], before = picture(given, size)
                else:
                    gray |= given.ndim == 2
                    colour = np.repeat(given[..., None], 3, -1) if given.ndim == 2 else given
                    pixels[place], before = resize_colour(colour, size), (given.shape[0], given.shape[1])
            except BadImage as error:
                problems.append((found.ids[row], str(error)))
                continue
            kept.append(place)
            sizes.add(before)
            if place % work.rows_per_block == 0:
                work.progress(f"read {self.name}", place, len(chosen))
        ids = np.array(found.ids, object)[chosen]
        return Drawn(ids[kept], labels[chosen][kept], pixels[kept], sizes, gray)

    def _part(self, source: Path, part: str) -> Part:
        """The part in whichever of the layouts the source has; `UserError` for classes that are not the set's."""
        if is_hub_folder(source):
            pixels, labels = labelled_images(HubFolder(self.name, source), part, self.shape, self.hub_labels)
            found: Part | None = Part(numbered(part, len(pixels)), labels, pixels)
        else:
            found = self.read(source, part) or self._class_folders(source, part)
        if found is None or not len(found.ids):
            raise UserError(f"{self.name}: {source} has no pictures of {part}; pass the folder of the whole set")
        if len(found.labels) != len(found.ids):
            raise UserError(f"{self.name}: {len(found.ids)} pictures but {len(found.labels)} labels of {part} in "
                            f"{source}; fetch them again")  # fmt: skip
        labels = np.asarray(found.labels)
        if labels.min() < 0 or labels.max() >= len(self.names):
            odd = int(labels.min() if labels.min() < 0 else labels.max())
            raise UserError(f"{self.name}: {source} has the class {odd} in {part}; there are 0 to "
                            f"{len(self.names) - 1}; fetch it again")  # fmt: skip
        return found

    def _class_folders(self, source: Path, part: str) -> Part | None:
        """`{train,test}/<class>/<picture>` below a folder or in an archive; val counts as test where there is no test.
        The classes of a set whose names are not known are its folders in the order of the alphabet."""

        def wanted_file(name: str) -> bool:
            match = _PICTURE.search(name)
            return match is not None and (match[1].lower() == "train") == (part == "train")

        found: dict[str, list[tuple[str, str, bytes]]] = {}  # part -> class, id, picture
        for name, raw in sorted(read_members(source, wanted_file)):
            match = _PICTURE.search(name)
            assert match is not None
            which = match[1].lower()
            found.setdefault(which, []).append((match[2], f"{match[2]}/{match[3]}", raw))
        wanted = part if part in found else next(iter(sorted(found)), part)
        if wanted not in found:
            return None
        there = sorted({name for name, _, _ in found[wanted]})
        known = self.names if set(self.names) >= set(there) else tuple(there)
        if len(there) != len(self.names) or len(known) != len(self.names):
            missing = [name for name in self.names if name not in there]
            told = f"class {missing[0]} has no picture in {wanted}" if set(there) < set(self.names) else (
                f"{wanted} has {len(there)} classes instead of {len(self.names)}"
            )  # fmt: skip
            raise UserError(f"{self.name}: {told} of {source}; it wants {wanted}/<class>/<picture> for each")
        number = {name: place for place, name in enumerate(known)}
        rows = found[wanted]
        return Part([f"{part}/{id}" for _, id, _ in rows], [number[name] for name, _, _ in rows], [r for *_, r in rows])


def numbered(part: str, count: int, start: int = 0) -> list[str]:
    """Ids of pictures that have no name."""
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
    """Mean and deviation of each channel [N, 3, H, W], 0..255: whole numbers up to the last step."""
    count = max(1, pixels.size // 3)
    sums = [int(pixels[:, channel].sum(dtype=np.int64)) for channel in range(3)]
    squares = [sum(int(np.square(part, dtype=np.int64).sum()) for part in pixels[:, channel]) for channel in range(3)]
    variances = [(count * square - total**2) / count**2 for total, square in zip(sums, squares, strict=True)]
    return [total / count for total in sums], [variance**0.5 for variance in variances]
