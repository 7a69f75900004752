"""Small files in the layout of a data set, from a schema: its samples, and what each path holds.

A path with fields, such as `{part}/{n:04d}.png`, is a file of each sample, which its fields name; one without is a file
of all samples. What is drawn depends on the path alone, so that the same schema always gives the same bytes.
"""

from __future__ import annotations

import gzip
import io
import itertools
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from image_sets import encoded, picture
from scipy.io import savemat

Rng = np.random.Generator
Sample = Mapping[str, Any]
Content = Callable[[Rng, Any], Any]  # of a sample, or of a list of all: text, bytes, an array, arrays by name
WORDS = [f"{consonant}{vowel}{end}" for consonant in "bdfgklmnprst" for vowel in "aeiou" for end in "nrst"]


def each(**fields: Any) -> list[Sample]:
    """The samples of all combinations of the fields' values, with a running number `i`.

    A function stands for a field that follows from the others.
    """
    names = [name for name, values in fields.items() if not callable(values)]
    samples = []
    for i, values in enumerate(itertools.product(*(fields[name] for name in names))):
        sample = {"i": i, **dict(zip(names, values, strict=True))}
        for name in fields.keys() - set(names):
            sample[name] = fields[name](sample)
        samples.append(sample)
    return samples


@dataclass(frozen=True)
class FakeSet:
    """The schema of a small data set: samples, and path -> content."""

    samples: list[Sample]
    files: Mapping[str, Content | str | bytes]

    def write(self, folder: Path) -> Path:
        for path, content in self.contents():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        return folder

    def pack(self, archive: Path) -> Path:
        """Write the same files into a zip or a tar, as its name says."""
        archive.parent.mkdir(parents=True, exist_ok=True)
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive, "w") as packed:
                for path, content in self.contents():
                    packed.writestr(path, content)
            return archive

        kind = {".gz": "gz", ".xz": "xz", ".bz2": "bz2"}.get(archive.suffix, "")
        with tarfile.open(archive, f"w:{kind}") as tar:
            for path, content in self.contents():
                member = tarfile.TarInfo(path)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        return archive

    def contents(self) -> Iterable[tuple[str, bytes]]:
        """Yield path and bytes of each file."""
        for template, content in self.files.items():
            for path, of in [(template, self.samples)] if "{" not in template else self.of_each(template):
                value = content(np.random.default_rng(zlib.crc32(path.encode())), of) if callable(content) else content
                yield path, as_bytes(path, value)

    def of_each(self, template: str) -> list[tuple[str, Sample]]:
        """Return path and sample of each file that a template names."""
        return list({template.format(**sample): sample for sample in self.samples}.items())


def as_bytes(path: str, value: Any) -> bytes:
    """Return a value in the format that a path's suffix names."""
    stem, suffix = path.rpartition(".")[::2]
    if isinstance(value, str):
        value = value.encode()
    if suffix == "gz":
        return gzip.compress(as_bytes(stem, value), mtime=0)
    if isinstance(value, bytes):
        return value
    buffer = io.BytesIO()
    if suffix in ("jpg", "JPEG"):
        return encoded(value, "JPEG")
    if suffix == "png":
        return encoded(value, "PNG")
    if suffix == "npy":
        np.save(buffer, value)
    elif suffix == "npz":
        np.savez(buffer, **value)
    elif suffix == "mat":
        savemat(buffer, value)
    else:
        raise AssertionError(f"{path}: text or bytes, not {type(value).__name__}")
    return buffer.getvalue()


# -- kinds of files ----------------------------------------------------------------------------------------------------


def picture_of(height: int, width: int) -> Content:
    return lambda rng, sample: picture(rng, height, width)


def grey(height: int, width: int) -> Content:
    return lambda rng, sample: picture(rng, height, width)[:, :, 0].copy()


def classes(values: Iterable[int], height: int, width: int, block: int = 8) -> Content:
    """A map of labels, in blocks of equal ones."""
    chosen = np.array(list(values), np.uint8)
    ones = np.ones((block, block), np.uint8)
    return lambda rng, sample: np.kron(rng.choice(chosen, (height // block, width // block)), ones)


def numbers(low: int, high: int, height: int, width: int, gaps: tuple[int, ...] = (), kind: Any = np.uint16) -> Content:
    """A map of whole numbers; `gaps` are those of its first rows, four rows each."""

    def draw(rng: Rng, sample: Sample) -> np.ndarray:
        values = rng.integers(low, high, (height, width)).astype(kind)
        for place, gap in enumerate(gaps):
            values[4 * place : 4 * (place + 1)] = gap
        return values

    return draw


def vectors(of: Iterable[tuple[int, int, int]], height: int, width: int) -> Content:
    """A map of directions, as the colours of a picture."""
    return lambda rng, sample: rng.choice(np.array(list(of), np.uint8), (height, width))


def lines(line: str | Callable[[Sample], str], head: str = "", end: str = "\n", **where: Any) -> Content:
    """A text of a line for each sample, or for those whose fields are as named."""

    def text(rng: Rng, samples: list[Sample]) -> str:
        chosen = [sample for sample in samples if all(sample[name] == value for name, value in where.items())]
        rows = [line.format(**sample) if isinstance(line, str) else line(sample) for sample in chosen]
        return end.join([*([head] if head else []), *rows]) + end

    return text


def sentence(sample: Sample, words: int = 8) -> str:
    """A few words that depend on the sample."""
    rng = np.random.default_rng(zlib.crc32(repr(sorted(sample.items())).encode()))
    return " ".join(WORDS[place] for place in rng.zipf(1.5, words) % len(WORDS))


def idx(values: np.ndarray) -> bytes:
    """An array as MNIST's files have it."""
    return bytes((0, 0, 8, values.ndim)) + np.array(values.shape, ">u4").tobytes() + values.astype(np.uint8).tobytes()
