"""A storage that does not answer for a while: waited for with a word, and made good afterwards."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from mtlscale.config import UserError
from mtlscale.execution.workers.trial import keep_record
from mtlscale.records import Holder, RunRecord, Storage, StorageLease, storage_lease, supplement
from mtlscale.records import storage as storage_module


class Remote(LocalFileSystem):  # type: ignore[misc]
    """A driver whose service is away while `errors` has something to raise."""

    protocol = "remote"
    errors: list[Exception] = []  # noqa: RUF012

    def _call(self, name: str, *args: object, **settings: object) -> object:
        if Remote.errors:
            raise Remote.errors.pop(0)
        return getattr(super(), name)(*args, **settings)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(LocalFileSystem._strip_protocol(str(path).removeprefix("remote://")))

    def put_file(self, *args: object, **settings: object) -> object:
        return self._call("put_file", *args, **settings)

    def pipe_file(self, *args: object, **settings: object) -> object:
        return self._call("pipe_file", *args, **settings)

    def get_file(self, *args: object, **settings: object) -> object:
        return self._call("get_file", *args, **settings)

    def cat_file(self, *args: object, **settings: object) -> object:
        return self._call("cat_file", *args, **settings)

    def glob(self, *args: object, **settings: object) -> object:
        return self._call("glob", *args, **settings)

    def find(self, *args: object, **settings: object) -> object:
        return self._call("find", *args, **settings)

    def exists(self, *args: object, **settings: object) -> object:
        return self._call("exists", *args, **settings)


class EndpointConnectionError(Exception):
    """As botocore has it: no OSError."""

    __module__ = "botocore.exceptions"


AWAY = [
    ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"),
    TimeoutError("timed out"),
    OSError(errno.EIO, "Service Unavailable"),
    EndpointConnectionError("Could not connect to the endpoint URL"),
]


class Clock:
    """A clock that only sleeping moves."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    fsspec.register_implementation("remote", Remote, clobber=True)
    clock = Clock()
    monkeypatch.setattr(storage_module, "time", clock)
    yield clock
    Remote.errors = []


@pytest.mark.parametrize("error", AWAY, ids=lambda error: type(error).__name__)
def test_every_call_waits_and_says_so(error: Exception, tmp_path: Path, clock: Clock) -> None:
    said: list[str] = []
    storage = Storage(f"remote://{tmp_path}/bucket", said.append)
    (tmp_path / "file").write_text("x")
    for call in (
        lambda: storage.put(tmp_path / "file", "runs/a/record.json"),
        lambda: storage.write("b.json", b"x"),
        lambda: storage.get("b.json", tmp_path / "there"),
        lambda: storage.read("b.json") == b"x",
        lambda: storage.exists("b.json"),
        lambda: storage.below("runs") == ["a/record.json"],
        lambda: storage.finished() == {"a"},
        lambda: storage.remove("b.json"),
    ):
        said.clear()
        Remote.errors = [error] * 4
        assert call() in (None, True)  # type: ignore[no-untyped-call]
        assert said[0].startswith(f"storage remote://{tmp_path}/bucket does not answer (")
        assert said[0].endswith("waiting for it, up to 10 minutes")
        assert said[1] == f"storage remote://{tmp_path}/bucket answers again, after 15 s" and len(said) == 2


def test_waiting_has_an_end(tmp_path: Path, clock: Clock) -> None:
    Remote.errors = [AWAY[0]] * 1000
    with pytest.raises(UserError, match=r"has not answered for 10 minutes \(.*refused\); once it does, the same"):
        Storage(f"remote://{tmp_path}/bucket").write("a", b"x")
    assert 540 < clock.now <= 600


@pytest.mark.parametrize(
    "error", [PermissionError("no"), OSError(errno.ENOSPC, "full"), ValueError("x"), FileExistsError("x")]
)
def test_what_waiting_does_not_mend_comes_at_once(error: Exception, tmp_path: Path, clock: Clock) -> None:
    Remote.errors = [error]
    with pytest.raises(type(error)):
        Storage(f"remote://{tmp_path}/bucket").write("a", b"x")
    assert clock.now == 0
    Remote.errors = [AWAY[0]]
    with pytest.raises(UserError, match="ConnectionRefusedError"):
        Storage(f"remote://{tmp_path}/bucket").check()
    assert clock.now == 0


def test_training_does_not_wait_for_its_checkpoint_to_be_stored(tmp_path: Path, clock: Clock) -> None:
    folder = tmp_path / "runs" / "a"
    folder.mkdir(parents=True)
    storage = Storage(f"remote://{tmp_path}/bucket")
    store = storage.checkpoints(folder)
    (folder / "checkpoint.pt").write_bytes(b"1")
    Remote.errors = [AWAY[3]]
    store()
    assert clock.now == 0 and not storage.exists("runs/a/checkpoint.pt")
    store()
    assert storage.read("runs/a/checkpoint.pt") == b"1"


def test_a_run_that_cannot_be_stored_has_ended_well_and_is_stored_later(tmp_path: Path) -> None:
    record = RunRecord(
        run_id="a",
        experiment="e",
        dataset="d",
        method="m",
        seed=0,
        status="finished",
        spec={},
        fingerprint="f",
        higher_is_better={},
        main_metrics={},
    )
    folder, storage = tmp_path / "runs" / record.run_id, Storage(f"remote://{tmp_path}/bucket")
    Remote.errors = [AWAY[0]] * 1000
    [remark] = keep_record(folder, record, None, storage)
    assert remark.endswith(f"; its results are in {folder} alone")
    Remote.errors = []
    assert storage.finished() == set()
    assert supplement(storage, [folder, tmp_path / "runs" / "lost"]) == ["lost"]
    assert storage.finished() == {record.run_id}


def test_a_driver_says_once_that_its_storage_is_away_and_once_that_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    holder = Holder.me("a")
    lease = StorageLease(Storage(f"remote://{tmp_path}/bucket"), holder, said.append)

    class Beats:
        """As many beats as are wanted, at once."""

        left = 5

        def wait(self, seconds: float) -> bool:
            self.left -= 1
            return self.left < 0

    monkeypatch.setattr(lease, "_over", Beats())
    Remote.errors = [AWAY[0]] * 2
    lease._beat()
    assert [line.split(f"{tmp_path}/bucket ")[1] for line in said] == [
        f"does not answer ({AWAY[0]}); runs wait for it",
        "answers again",
    ]
    assert storage_lease.BEAT_SECONDS <= 60
