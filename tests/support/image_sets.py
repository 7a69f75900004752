"""Small image sets in official layouts: pictures from a fixed generator, and the bytes preparing them gives."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mtlscale.config import SPLITS, build
from mtlscale.data.readers.prepared import PreparedData, SourceInfo, load_prepared, read_ids
from pipelines import PrepareContext, write_prepared


def picture(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """uint8 [H, W, 3], smooth enough for a JPEG."""
    coarse = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


def encoded(pixels: np.ndarray, format: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format, **({"quality": 95} if format == "JPEG" else {}))
    return buffer.getvalue()


def save(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npy":
        np.save(path, pixels)
    else:
        path.write_bytes(encoded(pixels, "JPEG" if path.suffix == ".jpg" else "PNG"))


def prepared_bytes(
    name: str, options: dict[str, Any], source: Path | None, out: Path, work: PrepareContext
) -> dict[str, bytes]:
    """What preparing writes into the new folder `out`."""
    out.mkdir(parents=True)
    pipeline = build("datasets", name, options)
    info = SourceInfo(description="", fingerprint="")
    located = None if source is None else pipeline.locate(source)
    write_prepared(out, pipeline, info, pipeline.prepare(located, work), work)
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def assert_same_bytes(name: str, options: dict[str, Any], source: Path, out: Path, works: list[PrepareContext]) -> None:
    results = [prepared_bytes(name, options, source, out / str(n), work) for n, work in enumerate(works)]
    for split in SPLITS:
        assert f"{split}/all/00000.parquet" in results[0]
    assert all(name == "manifest.json" or name.endswith(".parquet") for name in results[0])
    for result in results[1:]:
        assert result == results[0]


IN_PROCESS = [PrepareContext(), PrepareContext(), PrepareContext(rows_per_block=3), PrepareContext(rows_per_block=1)]
WITH_RAY = [
    PrepareContext(),
    PrepareContext(engine="ray", rows_per_block=100_000),
    PrepareContext(engine="ray", rows_per_block=2),
]


def by_id(folder: Path) -> dict[str, tuple[str, int]]:
    """id -> split and row."""
    return {id: (split, row) for split in SPLITS for row, id in enumerate(read_ids(folder, split, "all"))}


def ids_by_split(folder: Path) -> dict[str, set[str]]:
    return {split: set(read_ids(folder, split, "all")) for split in SPLITS}


def assert_statistics_of_train(data: PreparedData) -> None:
    """The channel means and deviations in the manifest are those of the training images."""
    pixels = data.splits["train"]["all"].inputs.numpy().astype(np.float64)
    again = load_prepared(data.folder).suite.extras
    np.testing.assert_allclose(again["mean"], pixels.mean((0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(again["std"], pixels.std((0, 2, 3)), rtol=1e-9)
