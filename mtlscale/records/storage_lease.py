"""Best-effort lease for drivers that have no folder in common, only a `Storage`.

    leases/EXPERIMENT/SINCE-ID.json   its driver, and a number that it raises every twenty seconds

The oldest lease wins. Object stores have no operation known to all drivers of fsspec that takes a name only if it is
free, so two drivers that begin within the same two seconds, on machines whose clocks differ, may both go on.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict

from mtlscale.records.driver_lock import Holder
from mtlscale.records.storage import Storage

BEAT_SECONDS = 20.0  # between two heartbeats
LOST_SECONDS = 60.0  # without a heartbeat, after which a driver counts as dead
SETTLE_SECONDS = 2.0  # until the writes of another driver become visible


class StorageLease:
    """The lease of one driver, from the first `take` to `release`.

    Args:
        predecessor: A driver that is known to be dead, so that its lease ends at once.
    """

    def __init__(
        self,
        storage: Storage,
        holder: Holder,
        tell: Callable[[str], None] = lambda text: None,
        predecessor: Holder | None = None,
    ) -> None:
        self._storage, self._holder, self._tell, self._predecessor = storage, holder, tell, predecessor
        self._folder = f"leases/{holder.experiment}"
        self._name = f"{time.time():017.6f}-{uuid.uuid4().hex}.json"
        self._seen: dict[str, tuple[bytes, float]] = {}  # name -> its content, and since when
        self._beats = 0
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self) -> Holder | None:
        """Try once to take the lease; return None on success, else the driver that holds it."""
        holder = self._other()
        if holder is None:
            self._write(self._storage)
            time.sleep(SETTLE_SECONDS)
            holder = self._other(self._name)
            if holder is None:
                self._thread = threading.Thread(target=self._beat, name="storage-lease", daemon=True)
                self._thread.start()
            else:
                self._storage.remove(f"{self._folder}/{self._name}")

        return holder

    def release(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        with contextlib.suppress(Exception):  # every driver has errors of its own; its number will no longer rise
            self._storage.impatient().remove(f"{self._folder}/{self._name}")

    def _other(self, before: str | None = None) -> Holder | None:
        """Return the oldest living driver whose lease is older than `before`, if given; remove leases of dead ones."""
        for name in sorted(self._storage.below(self._folder)):
            if name == self._name or not name.endswith(".json") or (before is not None and name > before):
                continue

            text = self._storage.read(f"{self._folder}/{name}")
            if text is None:
                continue

            known_text, since = self._seen.setdefault(name, (text, time.monotonic()))
            if known_text != text:
                since = time.monotonic()
                self._seen[name] = text, since

            holder = Holder(**json.loads(text)["holder"])
            if holder != self._predecessor and time.monotonic() - since <= LOST_SECONDS:
                return holder
            self._storage.remove(f"{self._folder}/{name}")
        return None

    def _write(self, storage: Storage) -> None:
        content = {"holder": asdict(self._holder), "beat": self._beats}
        storage.write(f"{self._folder}/{self._name}", json.dumps(content).encode())

    def _beat(self) -> None:
        """Raise the number, and say of the storage when it is away and when it is back."""
        storage, away = self._storage.impatient(), False
        while not self._over.wait(BEAT_SECONDS):
            self._beats += 1
            try:
                self._write(storage)
            except Exception as error:  # every driver has errors of its own
                if not away:
                    reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
                    self._tell(f"storage {storage.url} does not answer ({reason}); runs wait for it")
                away = True
            else:
                if away:
                    self._tell(f"storage {storage.url} answers again")
                away = False
