"""How fast images become a prepared set: our preparation beside a plain loop with Pillow.

The program writes a set in CelebA's official layout: generated JPEGs of the official 178 x 218 pixels, repeated. The
plain loop is one process that opens, decodes and scales one image after the other with Pillow, keeps all of them, and
writes the same Parquet file at the end; the pixels are compared. Ours is `prepare` from folder to published set, once
in this process, on a thread for every core, and once through Ray Data on two cores with their workers warm, checks and
statistics included. Then a second preparation, which finds the first.

    python benchmarks/run.py prepare_images --images 20000
"""

from __future__ import annotations

import argparse
import io
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from harness import Sheet, Times, local_ray, ratio, target, timed
from PIL import Image

from mtlscale.config import SPLITS
from mtlscale.data.readers.prepared import load_prepared, read_ids
from mtlscale.execution.preparing.prepare import prepare
from pipelines.image.celeba import NINE

RATIO_TARGET, AGAIN_TARGET, CORES = 1.6, 2.0, 2
DISTINCT = 256
HEIGHT, WIDTH = 218, 178


def generated(count: int) -> list[bytes]:
    """JPEGs with the detail, and so the size, of photographs."""
    rng, pictures = np.random.default_rng(0), []
    for _ in range(count):
        layers = [
            Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8)).resize((WIDTH, HEIGHT), 3)
            for side in (3, 12, 48)
        ]
        mixed = sum(np.asarray(layer, np.float64) * share for layer, share in zip(layers, (0.6, 0.3, 0.1), strict=True))
        buffer = io.BytesIO()
        Image.fromarray(np.clip(mixed, 0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=90)
        pictures.append(buffer.getvalue())
    return pictures


def write_set(folder: Path, count: int) -> None:
    pictures = generated(DISTINCT)
    (folder / "img_align_celeba").mkdir(parents=True)
    rng = np.random.default_rng(1)
    lines = [str(count), " ".join(NINE)]
    for number in range(1, count + 1):
        (folder / "img_align_celeba" / f"{number:06d}.jpg").write_bytes(pictures[number % DISTINCT])
        lines.append(f"{number:06d}.jpg " + " ".join(str(value) for value in rng.choice([-1, 1], len(NINE))))
    (folder / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")


def plain_loop(source: Path, target: Path, side: int) -> dict[str, np.ndarray]:
    """The usual loop; the arrays by id."""
    images = {}
    for path in sorted((source / "img_align_celeba").iterdir()):
        with Image.open(path) as image:
            scaled = image.convert("RGB").resize((side, side), Image.Resampling.BILINEAR)
        images[path.stem] = np.ascontiguousarray(np.asarray(scaled).transpose(2, 0, 1))
    flat = np.concatenate([image.ravel() for image in images.values()])
    pixels = pa.Array.from_buffers(pa.binary(3 * side * side), len(images), [None, pa.py_buffer(flat)])
    pq.write_table(
        pa.table({"id": list(images), "input": pixels}),
        target,
        compression="zstd",
        compression_level=1,
        use_dictionary=False,
        write_statistics=False,
        row_group_size=1024,
    )
    return images


def ours(source: Path, engine: Any, side: int = 64) -> None:
    with tempfile.TemporaryDirectory() as home:
        prepare("celeba", {"split": "own", "size": side}, source, Path(home), engine=engine)


def check(source: Path, images: dict[str, np.ndarray]) -> None:
    """Ours has the pixels of the plain loop."""
    with tempfile.TemporaryDirectory() as home:
        folder = prepare("celeba", {"split": "own"}, source, Path(home), engine="ray")
        data = load_prepared(folder)
        for split in SPLITS:
            for id, row in zip(read_ids(folder, split, "all"), data.splits[split]["all"].inputs, strict=True):
                assert np.array_equal(row.numpy(), images.pop(id)), id
    assert not images


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3, help="turns")


QUICK = {"images": 300, "repeats": 1}


def run(options: argparse.Namespace) -> bool:
    with tempfile.TemporaryDirectory() as folder, local_ray(CORES):
        source, home = Path(folder, "set"), Path(folder, "home")
        write_set(source, options.images)
        ours(source, "ray")  # workers start and import
        times: Times = {"plain loop, one process": [], "ours, Ray Data": [], "ours, in process": []}
        for repeat in range(options.repeats):  # one right after the other, so that other load meets all
            seconds, images = timed(plain_loop, source, Path(folder, "plain.parquet"), 64)
            times["plain loop, one process"].append(seconds)
            times["ours, Ray Data"].append(timed(ours, source, "ray")[0])
            times["ours, in process"].append(timed(ours, source, "local")[0])
            if repeat == 0:
                check(source, images)
        prepare("celeba", {"split": "own"}, source, home, engine="local")
        again, _ = timed(prepare, "celeba", {"split": "own"}, source, home, engine="local")

    title = f"{options.images} images of {WIDTH} x {HEIGHT} to 64 x 64, {CORES} cores"
    sheet = Sheet(title, "", "seconds", "images/s", "times the plain loop")
    for name, seconds_of in times.items():
        middle = statistics.median(seconds_of)
        sheet.row(name, middle, round(options.images / middle), ratio(times, "plain loop, one process", name))
    sheet.show()
    best = max(row[-1] for row in sheet.rows[1:])
    good = target(f"{best:.2f} times the plain loop, at least {RATIO_TARGET}", best >= RATIO_TARGET)
    return target(f"again in {again:.2f} s, at most {AGAIN_TARGET:.0f} s", again <= AGAIN_TARGET) & good
