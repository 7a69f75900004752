"""Nodes without a common folder: each has its own home, and one URL between them."""

from __future__ import annotations

import gc
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest
import torch
from listening import Listening

from mtlscale.api import run
from mtlscale.config import ResourceSpec, UserError, load_experiment
from mtlscale.data.readers.cache import FOLDER, LIMIT
from mtlscale.data.readers.prepared import load_prepared, read_manifest
from mtlscale.data.readers.random_access import Reader, open_reader
from mtlscale.data.remote import fetch, publish
from mtlscale.execution import Job, Options, execute
from mtlscale.execution.preparing.prepare import fetch_prepared, prepare
from mtlscale.execution.rehearsal.dry_run import plan
from mtlscale.records import Epoch, Home, RunRecord, Storage
from mtlscale.records.events import EpochEnded, RunEnded


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path / 'bucket'}"


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepare the digits once; tests have copies."""
    return prepare("digits", {}, None, tmp_path_factory.mktemp("digits"))


@pytest.fixture
def prepared(digits: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(digits, tmp_path / "home" / "data" / "digits" / digits.name))


def contents(folder: Path) -> dict[Path, bytes]:
    return {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.slow  # several runs through Ray
@pytest.mark.ray
def test_what_one_home_finished_another_finds(
    experiment_file: Callable[..., Path], tmp_path: Path, url: str, local_ray: None
) -> None:
    """Prepared data and runs come from the storage: nothing is trained twice, no first home is needed."""
    experiment = load_experiment(experiment_file(tracking="{enabled: false}"))
    first, again = Listening(), Listening()
    there = run(experiment, home=Home(tmp_path / "one", url), sinks=[first])
    assert len(first.ended) == len(there.records)
    shutil.rmtree(tmp_path / "one")
    assert plan(experiment, Home(tmp_path / "dry", url)).todo == []  # type: ignore[union-attr]
    here = run(experiment, home=Home(tmp_path / "two", url), sinks=[again])
    assert again.ended == []
    assert [r.model_dump() for r in here.records] == [r.model_dump() for r in there.records]


def test_a_run_goes_on_on_another_node(
    experiment_file: Callable[..., Path], tmp_path: Path, url: str, prepared: Path
) -> None:
    training = "{epochs: 4, batch_size: 32, checkpoint_seconds: 0}"
    experiment = load_experiment(experiment_file(training=training))
    fingerprints = dict.fromkeys(experiment.data(), "f")
    one = next(iter(experiment.runs(fingerprints)))

    def events(node: str, storage: str | None) -> list[Epoch | RunRecord]:
        home, data = Home(tmp_path / node), tmp_path / node / "data" / "digits" / prepared.name
        found: list[Epoch | RunRecord] = []
        options = Options(ResourceSpec(), models=False, storage=storage, phases=home.phases)
        for event in execute(Job(one, data, home.run(one.run_id)), options):
            assert isinstance(event, EpochEnded | RunEnded)
            found.append(event.epoch if isinstance(event, EpochEnded) else event.record)
            if node == "lost" and len(found) == 2:
                break  # it is gone, and its disk with it
        return found

    publish(Storage(url), prepared)
    events("lost", url)
    assert (tmp_path / "lost" / "data" / "digits" / prepared.name / "manifest.json").exists()  # fetched
    shutil.rmtree(tmp_path / "lost")
    *epochs, record = events("new", url)
    assert [epoch.epoch for epoch in epochs if isinstance(epoch, Epoch)] == [3, 4]
    assert not Path(tmp_path / "bucket" / "runs" / one.run_id / "checkpoint.pt").exists()
    shutil.copytree(prepared, tmp_path / "calm" / "data" / "digits" / prepared.name)
    undisturbed = events("calm", None)[-1]
    assert isinstance(record, RunRecord) and isinstance(undisturbed, RunRecord)
    assert record.status == "finished" and record.metrics == undisturbed.metrics


def test_two_publish_at_once(prepared: Path, tmp_path: Path, url: str) -> None:
    threads = [threading.Thread(target=publish, args=(Storage(url), prepared)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stored = tmp_path / "bucket" / "data" / "digits" / prepared.name
    assert contents(stored) == contents(prepared)  # and nothing half written is left
    fetch_prepared("digits", {}, tmp_path / "other", Storage(url))
    (fetched,) = (tmp_path / "other" / "data" / "digits").iterdir()
    assert set(map(str, contents(fetched))) == {"manifest.json", ".origin"}  # the rest when it is wanted
    here, there = load_prepared(prepared), load_prepared(fetched)
    for split, streams in here.splits.items():
        for stream, samples in streams.items():
            assert torch.equal(samples.inputs, there.splits[split][stream].inputs)
            for task, target in samples.targets.items():
                assert torch.equal(target, there.splits[split][stream].targets[task])
    del there


def test_object_stores_do_as_well(prepared: Path, tmp_path: Path) -> None:
    storage = Storage("memory://mtlscale-test")
    storage.check()
    publish(storage, prepared)
    target = tmp_path / "other" / "data" / "digits" / prepared.name
    assert fetch(storage, target)
    assert len(load_prepared(target).splits["test"]["digit3"]) == len(load_prepared(prepared).splits["test"]["digit3"])
    assert (target / "manifest.json").read_bytes() == (prepared / "manifest.json").read_bytes()
    assert not fetch(storage, target.with_name("unknown")) and not storage.get("runs/x/record.json", tmp_path / "x")
    fsspec.filesystem("memory").rm("/mtlscale-test", recursive=True)


def test_what_is_in_one_storage_can_be_published_in_another(prepared: Path, tmp_path: Path, url: str) -> None:
    publish(Storage(url), prepared)
    target = tmp_path / "other" / "data" / "digits" / prepared.name
    assert fetch(Storage(url), target)
    publish(Storage(f"file://{tmp_path / 'second'}"), target)
    assert contents(tmp_path / "second" / "data" / "digits" / prepared.name) == contents(prepared)


def test_a_damaged_copy_is_not_taken(prepared: Path, tmp_path: Path, url: str) -> None:
    publish(Storage(url), prepared)
    stored = tmp_path / "bucket" / "data" / "digits" / prepared.name
    (stored / "manifest.json").write_text("{")
    target = tmp_path / "other" / "data" / "digits" / prepared.name
    with pytest.raises(UserError, match="cannot be read"):
        fetch(Storage(url), target)
    assert not target.exists()


@pytest.mark.parametrize("kind", ["device", "memory", "mapped"])
@pytest.mark.parametrize("damage", ["gone", "flipped"])
def test_a_damaged_file_is_named_before_training(
    damage: str, kind: str, prepared: Path, tmp_path: Path, url: str
) -> None:
    publish(Storage(url), prepared)
    key = f"data/digits/{prepared.name}"
    file = tmp_path / "bucket" / key / "train" / "digit3.parquet"
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(bytes([*file.read_bytes()[:200], file.read_bytes()[200] ^ 1, *file.read_bytes()[201:]]))
    target = tmp_path / "other" / "data" / "digits" / prepared.name
    assert fetch(Storage(url), target)
    with pytest.raises(UserError, match=rf"{key}/train/digit3.parquet is damaged \(it") as error:
        reader(target, kind).sizes("train")
    assert "\n" not in str(error.value)
    assert reader(target, kind).sizes("val")["digit3"] > 0


def reader(folder: Path, kind: str) -> Reader:
    return open_reader(load_prepared(folder), kind, device=torch.device("cpu"), dtype=torch.float32)[0]


def test_what_is_fetched_counts_in_the_cache_and_goes(
    prepared: Path, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Split by split, once for all processes; the set used longest ago makes room; what is there is not fetched."""
    monkeypatch.setenv(FOLDER, str(tmp_path / "cache"))
    other = prepare("digits", {"negatives": 19}, None, tmp_path / "home")
    one, two = (tmp_path / "other" / "data" / "digits" / folder.name for folder in (prepared, other))
    for folder, target in ((prepared, one), (other, two)):
        publish(Storage(url), folder)
        assert fetch(Storage(url), target)
    fetched = list[str]()
    get = Storage.get

    def counted(self: Storage, key: str, file: Path) -> bool:
        fetched.append(key.rsplit("/", 2)[1])
        return get(self, key, file)

    monkeypatch.setattr(Storage, "get", counted)
    reader(one, "device").sizes("val")
    assert set(fetched) == {"val"} and len(fetched) == 10
    key = read_manifest(one).fingerprint[:32]
    assert {path.name for path in (tmp_path / "cache" / key).iterdir()} == {"val"}
    reader(one, "mapped").sizes("val")
    shutil.rmtree(tmp_path / "bucket" / "data" / "digits" / prepared.name / "val")
    reader(one, "memory").sizes("val")
    assert len(fetched) == 10
    size = sum(path.stat().st_size for path in (tmp_path / "cache").rglob("*.npy"))
    monkeypatch.setenv(LIMIT, str(1.5 * size / 2**30))
    gc.collect()
    reader(two, "device").sizes("val")
    assert not (tmp_path / "cache" / key).exists()
    monkeypatch.setenv(LIMIT, str(0.01 * size / 2**30))
    with pytest.raises(UserError, match=r"the cache is limited to .* too small for train/digit"):
        reader(two, "device").sizes("train")


@pytest.mark.parametrize("bad", ["nonsense://bucket", "file:///proc/nothing/here"])
def test_a_storage_that_cannot_be_used_is_said_in_one_line(bad: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"storage {bad}") as error:
        Storage(bad).check()
    assert "\n" not in str(error.value)
