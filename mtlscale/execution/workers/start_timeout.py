"""Start timeout: runs wait for workers that do not come up; noted after a minute, given up after `start_minutes`."""

from __future__ import annotations

import time
from collections.abc import Iterator

from mtlscale.config import ResourceSpec
from mtlscale.execution.events import Noted
from mtlscale.execution.monitoring import log
from mtlscale.execution.workers.placement import in_words, needs

NOTE_SECONDS = 60.0


class StartTimeout:
    """Start timeout of workers, told now and then whether any worker is up.

    `failure` is the reason why nobody should wait any longer, None until then.
    """

    def __init__(self, resources: ResourceSpec) -> None:
        self._limit = 60 * resources.start_minutes
        self._resources = resources
        self._since, self._noted = time.monotonic(), False
        self.failure: str | None = None

    def note(self, run_id: str, up: bool) -> Iterator[Noted]:
        """Check the timeout, and yield its one note in the name of a run.

        Args:
            run_id: The id of a run that waits, "" if none does.
            up: True if any worker is up.
        """
        if up or not run_id:
            self._since = time.monotonic()
            return

        waited = time.monotonic() - self._since
        if waited > self._limit:
            self.failure = f"no worker has come up within {self._limit / 60:g} minutes: {self._cause()}"

        if waited > NOTE_SECONDS and not self._noted:
            self._noted = True
            log.warning("runs wait for workers", extra={"text": self._cause(), "seconds": waited})
            yield Noted(run_id, f"no worker has come up for {waited:.0f} s: {self._cause()}")

    def _cause(self) -> str:
        need = f"each needs {in_words(needs(self._resources))}"
        if self._resources.workers > 1:
            need = f"a run needs {self._resources.workers}, {need}"
        return f"{need}; others may hold the cluster's places (`ray status` shows them)"
