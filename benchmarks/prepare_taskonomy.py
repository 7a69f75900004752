"""How the preparation of a large set of images scales: Taskonomy in its official tars, with one and two Ray workers.

The program writes the five buildings with small pictures (a few hundred distinct ones, repeated), prepares them with
default options (256 x 256 pixels, six files to a view) on a Ray with one CPU and on one with two, each in a fresh
process with warm workers, and compares images per second, what the driver's process itself computes beside everything
that is computed, the peak memory of driver and workers, and the bytes.

Example:
    python benchmarks/prepare_taskonomy.py --views 16000
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
from PIL import Image

from mtlscale.data.readers.prepared import read_manifest
from mtlscale.execution.preparing.prepare import prepare
from pipelines.image.taskonomy import BUILDINGS, DOMAINS

RATIO_TARGET, SHARE_TARGET = 1.7, 0.1
DISTINCT, VIEWS = 64, 8  # of each building; views of a point
OBJECT_STORE = 80_000_000  # bytes; Ray wants 75 MB at least


def png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def smooth(rng: np.random.Generator, side: int, channels: int, high: int) -> np.ndarray:
    """Numbers that change slowly, as in a picture, with some noise."""
    coarse = rng.random((5, 5, channels)).astype(np.float32)
    layers = [
        Image.fromarray(layer).resize((side, side), Image.Resampling.BICUBIC) for layer in coarse.transpose(2, 0, 1)
    ]
    mixed = np.stack([np.asarray(layer) for layer in layers], 2) + rng.normal(0, 0.02, (side, side, channels))
    return np.clip(mixed, 0, 1) * high


def view(rng: np.random.Generator, side: int) -> dict[str, bytes]:
    labels = np.kron(rng.integers(0, 18, (4, 4)), np.ones((side // 4, side // 4), int)).astype(np.uint8)
    depth = 300 + smooth(rng, side, 1, 4000)[..., 0].astype(np.uint16)
    depth[:2] = 65535
    arrays = {
        "rgb": smooth(rng, side, 3, 255).astype(np.uint8),
        "segment_semantic": labels,
        "depth_zbuffer": depth,
        "keypoints2d": smooth(rng, side, 1, 65535)[..., 0].astype(np.uint16),
        "edge_texture": smooth(rng, side, 1, 65535)[..., 0].astype(np.uint16),
        "normal": smooth(rng, side, 3, 255).astype(np.uint8),
    }
    return {domain: png(pixels) for domain, pixels in arrays.items()}


def write_set(folder: Path, views: int, side: int) -> None:
    """`<building>_<domain>.tar`, as they are offered."""
    folder.mkdir(parents=True)
    for place, building in enumerate(BUILDINGS):
        rng = np.random.default_rng(place)
        pictures = [view(rng, side) for _ in range(DISTINCT)]
        for domain in DOMAINS:
            with tarfile.open(folder / f"{building}_{domain}.tar", "w") as tar:
                for number in range(place, views, len(BUILDINGS)):
                    content = pictures[number // len(BUILDINGS) % DISTINCT][domain]
                    name = f"point_{number // VIEWS}_view_{number % VIEWS}_domain_{domain}.png"
                    info = tarfile.TarInfo(f"{domain}/{name}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))


def measure(source: Path, home: Path, workers: int) -> None:
    """In a process of its own: prepare on so many CPUs and print what it took, as JSON."""
    import ray

    from mtlscale.execution.cluster.cluster import session

    ray.init(
        address="local",
        num_cpus=workers,
        object_store_memory=OBJECT_STORE,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    driver, done = psutil.Process(), threading.Event()
    seconds_of: dict[int, float] = {}
    peak = {"driver": 0, "worker": 0}

    def of_workers() -> list[psutil.Process]:
        return [child for child in driver.children(recursive=True) if child.name().startswith("ray::")]

    def look() -> None:
        for child in of_workers():
            try:
                times = child.cpu_times()
                seconds_of[child.pid] = times.user + times.system
                peak["worker"] = max(peak["worker"], _own(child))
            except psutil.Error:
                continue
        peak["driver"] = max(peak["driver"], _own(driver))

    def watch() -> None:
        while not done.wait(2.0):
            look()

    with session():
        warm = ray.remote(num_cpus=1)(_import)
        ray.get([warm.remote() for _ in range(workers)])
        look()
        before, own = dict(seconds_of), sum(driver.cpu_times()[:2])
        watcher = threading.Thread(target=watch)
        watcher.start()
        started = time.perf_counter()
        folder = prepare("taskonomy", {}, source, home, engine="ray")
        seconds = time.perf_counter() - started
        done.set()
        watcher.join()
        look()
        own = sum(driver.cpu_times()[:2]) - own
        others = sum(spent - before.get(pid, 0.0) for pid, spent in seconds_of.items())
    ray.shutdown()
    manifest = read_manifest(folder)
    print(
        json.dumps(
            {
                **peak,
                "seconds": seconds,
                "own": own,
                "others": others,
                "fingerprint": manifest.fingerprint,
                "views": sum(entry.rows for entry in manifest.files),
                "bytes": sum(entry.bytes for entry in manifest.files),
                "files": len(manifest.files),
            }
        )
    )


def _own(process: psutil.Process) -> int:
    """Bytes that are not shared, as the object store is; cheap, for whoever looks is the driver that is measured."""
    memory = process.memory_info()
    return int(memory.rss - memory.shared)


def _import() -> None:
    import pipelines._writing.shards
    import pipelines.image.taskonomy  # noqa: F401

    time.sleep(0.5)  # so that each worker takes one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--views", type=int, default=16_000)
    parser.add_argument(
        "--side", type=int, default=64, help="of the written pictures, in pixels; the real ones have 512"
    )
    parser.add_argument("--folder", type=Path, help="where everything is written; default: a temporary folder")
    parser.add_argument("--measure", nargs=3, metavar=("SOURCE", "HOME", "WORKERS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        source, home, workers = arguments.measure
        measure(Path(source), Path(home), int(workers))
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        source = Path(name, "taskonomy")
        started = time.perf_counter()
        write_set(source, arguments.views, arguments.side)
        files = arguments.views * len(DOMAINS)
        print(
            f"{arguments.views} views of {arguments.side} x {arguments.side} in {time.perf_counter() - started:.0f} s"
        )
        print(f"  {files} files in {len(BUILDINGS) * len(DOMAINS)} tars\n")
        print(
            f"  {'workers':>8}{'seconds':>9}{'images/s':>10}{'driver CPU s':>14}{'all CPU s':>11}{'share':>7}", end=""
        )
        print(f"{'driver MB':>11}{'worker MB':>11}{'GB written':>12}{'files':>7}")
        results = []
        for workers in (1, 2):
            home = Path(name, f"home{workers}")
            command = [sys.executable, __file__, "--measure", str(source), str(home), str(workers)]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            result = json.loads(output.splitlines()[-1])
            shutil.rmtree(home)
            results.append(result)
            total = result["own"] + result["others"]
            print(
                f"  {workers:8}{result['seconds']:9.1f}{result['views'] / result['seconds']:10.0f}{result['own']:14.1f}"
                f"{total:11.1f}{result['own'] / total:7.1%}{result['driver'] / 1e6:11.0f}{result['worker'] / 1e6:11.0f}"
                f"{result['bytes'] / 1e9:12.2f}{result['files']:7}"
            )
        one, two = results
        assert one["views"] == two["views"] == arguments.views
        ratio = one["seconds"] / two["seconds"]
        share = max(result["own"] / (result["own"] + result["others"]) for result in results)
        print(f"\n  two workers / one: {ratio:.2f} (target {RATIO_TARGET}: {_verdict(ratio >= RATIO_TARGET)})")
        print(f"  driver's share of CPU: {share:.1%} (target {SHARE_TARGET:.0%}: {_verdict(share <= SHARE_TARGET)})")
        print(f"  the same bytes: {'yes' if one['fingerprint'] == two['fingerprint'] else 'NO'}")


def _verdict(met: bool) -> str:
    return "met" if met else "MISSED"


if __name__ == "__main__":
    main()
