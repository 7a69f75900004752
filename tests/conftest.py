"""Shared fixtures: real data where they are at hand, a small real experiment, a local Ray."""

from __future__ import annotations

import ast
import ctypes
import functools
import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import torch
from disturbance import disturbed
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from mtlscale.config import Experiment, Run, load_experiment
from mtlscale.config.registry import components
from mtlscale.config.registry.report_parts import PLUGIN as PLUGIN_MODULE
from mtlscale.data.memory_limits import cgroup_memory
from mtlscale.data.readers.prepared import PreparedData, load_prepared
from mtlscale.execution.preparing.prepare import prepare

OF_TESTS = Path(__file__).parent / "plugins"
PLUGIN = OF_TESTS / "uneven.py"

if "PYTEST_XDIST_WORKER" in os.environ:  # so do the processes that tests start: each core has a process already
    os.environ.setdefault("OMP_NUM_THREADS", "1")
# A machine that is busy is no failure of what is tested.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

MOST_PROCESSES = 4  # a process holds a gigabyte, and one of them has all tests that start Ray
RAY_MEMORY = 6 << 30  # bytes that Ray, its workers and a process of tests may have together
ENOUGH_MEMORY = 12 << 30  # bytes, for one process more than cores


def pytest_addoption(parser: pytest.Parser) -> None:
    """What the numeric folders have to bear: another processor's rounding, and sums over several threads."""
    group = parser.getgroup("mtlscale")
    group.addoption("--disturb", type=float, default=0.0, help="what float64 numbers begin with is off by this: 1e-15")
    group.addoption("--torch-threads", type=int, default=1, help="threads of torch in each process of tests")


def pytest_configure(config: pytest.Config) -> None:
    torch.set_num_threads(config.getoption("--torch-threads"))


@pytest.fixture(autouse=True, scope="session")
def disturbance(pytestconfig: pytest.Config) -> Iterator[None]:
    """Begin a little off for `--disturb`: what a test holds has to be well conditioned."""
    with disturbed(pytestconfig.getoption("--disturb"), numbers=True):
        yield


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One process a core, and one that waits for Ray; none besides this one where a single file or test was named,
    which is sooner done."""
    alone = len(config.args) == 1 and Path(config.args[0].split("::")[0]).is_file()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    processes = cores + (memory() >= ENOUGH_MEMORY)
    return 0 if alone or cores == 1 or memory() < RAY_MEMORY else min(processes, MOST_PROCESSES)


def memory() -> int:
    """The bytes that this process and its children may have."""
    group, total = cgroup_memory(), int(psutil.virtual_memory().total)
    return total if group is None else min(total, group.limit)


def pytest_collection_finish() -> None:
    """Keep the garbage collector from walking through all modules and tests again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # a collection each 700 objects, as by default, finds little and costs much


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests that start Ray where memory is too small; else they come first, since they take longest."""
    if memory() < RAY_MEMORY:
        skip = pytest.mark.skip(reason=f"Ray beside the tests needs {RAY_MEMORY >> 30} GB of memory")
        for item in items:
            if item.get_closest_marker("ray") is not None:
                item.add_marker(skip)
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("ray") is None)


class FilesAndRay(LoadFileScheduling):
    """A file's tests share a process and so its fixtures; one process has all that start a Ray cluster."""

    def _split_scope(self, nodeid: str) -> str:
        file, test = nodeid.split("::", 1)
        return "ray" if starts_ray(self.config.rootpath / file, test.partition("[")[0]) else file


def starts_ray(file: Path, test: str) -> bool:
    """As its marks say, read from the file: who gives out the tests has their names alone."""
    return not {test, "pytestmark"}.isdisjoint(_marked_ray(file))


@functools.cache
def _marked_ray(file: Path) -> set[str]:
    """Functions with the mark `ray`, and `pytestmark` where it has that."""
    found = set()
    for node in ast.parse(file.read_bytes()).body:
        if isinstance(node, ast.FunctionDef):
            marked, name = node.decorator_list, node.name
        elif isinstance(node, ast.Assign):
            marked, name = [node.value], ast.unparse(node.targets[0])
        else:
            continue
        if any("pytest.mark.ray" in ast.unparse(mark) for mark in marked):
            found.add(name)
    return found


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    return FilesAndRay(config, log) if config.getvalue("dist") == "load" else None


@pytest.fixture(autouse=True, scope="module")
def freed_memory() -> Iterator[None]:
    """Give the system back what a module's tests have freed: else a process of glibc's allocator grows to 3 GB."""
    yield
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


@pytest.fixture(autouse=True, scope="module")
def forgotten_plugins() -> Iterator[None]:
    """Forget the plugins that a module's tests wrote: another module's tests would find them by their names."""
    yield
    for classes in components._PLUGINS.values():
        for name, cls in list(classes.items()):
            file = getattr(sys.modules.get(cls.__module__), "__file__", None)
            if cls.__module__.startswith(PLUGIN_MODULE) and (file is None or not Path(file).is_relative_to(OF_TESTS)):
                del classes[name]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets: $MTLSCALE_DATA, or `../shared/data` beside the checkout."""
    named = os.environ.get("MTLSCALE_DATA")
    folder = Path(named) if named else Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no real data: set MTLSCALE_DATA to a folder of data sets")
    return folder


@pytest.fixture
def experiment_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes an experiment on the small uneven data set; keywords replace its lines."""

    def write(name: str = "small", **lines: str) -> Path:
        content = {
            "name": name,
            "plugins": f"[{PLUGIN}]",
            "datasets": "[uneven]",
            "methods": "[stl, equal, mgda]",
            "seeds": "[0]",
            "model": "{encoder: {name: mlp, hidden: [8]}}",
            "training": "{epochs: 3, batch_size: 16, lr: 1e-2, dtype: float64}",
            **lines,
        }
        content.setdefault("floors", "[]")
        path = tmp_path / f"{name}.yaml"
        path.write_text("".join(f"{key}: {value}\n" for key, value in content.items()))
        return path

    return write


@pytest.fixture
def small(experiment_file: Callable[..., Path]) -> Callable[..., Experiment]:
    """Loads such an experiment."""

    def load(**lines: str) -> Experiment:
        return load_experiment(experiment_file(**lines))

    return load


@pytest.fixture(scope="session")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., PreparedData]:
    """The small uneven data set, prepared and read."""
    from mtlscale.config import load_plugin

    load_plugin(PLUGIN)
    home = tmp_path_factory.mktemp("home")

    def load(**options: bool) -> PreparedData:
        return load_prepared(prepare("uneven", options, None, home))

    return load


@pytest.fixture
def run_of() -> Callable[..., Run]:
    """The first run of an experiment on prepared data."""

    def make(experiment: Experiment, data: PreparedData) -> Run:
        label = experiment.datasets[0].label
        return next(experiment.runs({label: data.manifest.fingerprint}))

    return make


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    """One local Ray with four logical CPUs for all tests that need one."""
    import logging

    import ray

    os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
    os.environ.setdefault("RAY_worker_niceness", "0")  # else workers starve beside other programs
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    yield
    ray.shutdown()
