"""How fast, and in how much memory, images become a prepared set: our preparation beside a plain loop with Pillow.

The program writes a set in CelebA's official layout: generated JPEGs of the official 178 x 218 pixels, repeated. The
plain loop is one process that opens, decodes and scales one image after the other with Pillow, keeps all of them, and
writes the same Parquet file at the end; the pixels are compared. Ours is `prepare` from folder to published set, once
in this process, on a thread for every core, and once through Ray Data on two cores with their workers warm, checks and
statistics included. Then a second preparation in a fresh process; then the peak memory of preparing sets of growing
size with a small object store.

Example:
    python benchmarks/prepare_images.py --images 20000
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from mtlscale.config import SPLITS
from mtlscale.data.readers.prepared import load_prepared, read_ids
from mtlscale.execution.cluster.cluster import session
from mtlscale.execution.preparing.prepare import prepare
from pipelines.image.celeba import NINE

RATIO_TARGET, AGAIN_TARGET, CORES = 1.6, 2.0, 2
DISTINCT = 256
HEIGHT, WIDTH = 218, 178
OBJECT_STORE = 80_000_000  # bytes; Ray wants 75 MB at least
LARGE_SIDE = 128  # of the scaled images when memory is measured

AGAIN = """
import sys
from pathlib import Path
from mtlscale.execution.preparing.prepare import prepare
prepare("celeba", {"split": "own"}, Path(sys.argv[1]), Path(sys.argv[2]), engine="local")
"""


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


def timed(function: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[float, Any]:
    started = time.perf_counter()
    result = function(*arguments, **options)
    return time.perf_counter() - started, result


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


def throughput(source: Path, count: int, repeats: int) -> None:
    import ray

    times: dict[str, list[float]] = {"plain loop, one process": [], "ours, in process": [], "ours, Ray Data": []}
    ray.init(address="local", num_cpus=CORES, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    with session(), tempfile.TemporaryDirectory() as folder:
        ours(source, "ray")  # workers start and import
        for repeat in range(repeats):  # one right after the other, so that other load meets all
            seconds, images = timed(plain_loop, source, Path(folder, "plain.parquet"), 64)
            times["plain loop, one process"].append(seconds)
            times["ours, Ray Data"].append(timed(ours, source, "ray")[0])
            times["ours, in process"].append(timed(ours, source, "local")[0])
            if repeat == 0:
                check(source, images)
    ray.shutdown()
    print(f"\n{count} images of {WIDTH} x {HEIGHT} to 64 x 64, {CORES} cores, best of {repeats}")
    print(f"  {'':28}{'seconds':>9}{'images/s':>10}{'ratio':>7}")
    base = min(times["plain loop, one process"])
    for label, measured in times.items():
        print(f"  {label:28}{min(measured):9.2f}{count / min(measured):10.0f}{base / min(measured):7.2f}")
    ratio = base / min(min(measured) for label, measured in times.items() if label.startswith("ours"))
    print(f"  target {RATIO_TARGET} times the plain loop: {'met' if ratio >= RATIO_TARGET else 'MISSED'}")


def again(source: Path) -> None:
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-c", AGAIN, str(source), home]
        subprocess.run(command, check=True)
        seconds, _ = timed(subprocess.run, command, check=True)
    verdict = "met" if seconds <= AGAIN_TARGET else "MISSED"
    print(f"\nsecond preparation, in a new process: {seconds:.2f} s (target {AGAIN_TARGET:.0f} s {verdict})")


def memory_of(source: Path) -> None:
    """In a process of its own: prepare with a small object store and print the peak memory, as JSON."""
    import ray

    ray.init(
        address="local",
        num_cpus=CORES,
        object_store_memory=OBJECT_STORE,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    done, peak = threading.Event(), {"driver": 0, "workers": 0}
    driver = psutil.Process()

    def watch() -> None:
        while not done.wait(0.2):
            workers = 0
            for child in driver.children(recursive=True):
                try:
                    if child.name().startswith("ray::"):
                        workers += child.memory_full_info().uss  # what is shared is the object store
                except psutil.Error:
                    continue
            peak["workers"] = max(peak["workers"], workers)
            peak["driver"] = max(peak["driver"], driver.memory_full_info().uss)

    before = driver.memory_full_info().uss
    watcher = threading.Thread(target=watch)
    watcher.start()
    seconds, _ = timed(ours, source, "ray", LARGE_SIDE)
    done.set()
    watcher.join()
    ray.shutdown()
    print(json.dumps({**peak, "before": before, "seconds": seconds}))


def memory(folders: dict[int, Path]) -> None:
    print(f"\npeak memory, object store of {OBJECT_STORE / 1e6:.0f} MB, images to {LARGE_SIDE} x {LARGE_SIDE}")
    print(f"  {'images':>8}{'decoded MB':>12}{'x store':>9}{'driver MB':>11}{'workers MB':>12}{'seconds':>9}")
    for count, folder in folders.items():
        command = [sys.executable, __file__, "--memory-of", str(folder)]
        result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
        size = count * 3 * LARGE_SIDE**2
        print(
            f"  {count:8}{size / 1e6:12.0f}{size / OBJECT_STORE:9.1f}{result['driver'] / 1e6:11.0f}"
            f"{result['workers'] / 1e6:12.0f}{result['seconds']:9.1f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=20_000, help="17,000 are ten times the small object store")
    parser.add_argument("--repeats", type=int, default=3, help="of the comparison with the plain loop")
    parser.add_argument("--only", choices=("speed", "memory"), help="leave the other part out")
    parser.add_argument("--memory-of", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory_of:
        memory_of(arguments.memory_of)
        return
    with tempfile.TemporaryDirectory() as folder:
        folders = {arguments.images: Path(folder, "whole")}
        if arguments.only != "speed":
            folders = {arguments.images // 4: Path(folder, "quarter"), **folders}
        for count, path in folders.items():
            write_set(path, count)
        if arguments.only != "memory":
            throughput(folders[arguments.images], arguments.images, arguments.repeats)
            again(folders[arguments.images])
        if arguments.only != "speed":
            memory(folders)


if __name__ == "__main__":
    main()
