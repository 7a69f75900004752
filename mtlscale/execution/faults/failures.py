"""Failures of workers, however they are started: those of workers that do not come up.

Runs that wait for workers are noted after a minute and given up after `start_minutes`, on a busy machine later and
after another try.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from mtlscale.config import ResourceSpec
from mtlscale.execution.faults import busy_machine
from mtlscale.execution.monitoring import log
from mtlscale.execution.placement import in_words, needs
from mtlscale.records.events import Noted

NOTE_SECONDS = 60.0
_BUSY = 2.0  # times as slow as idle, from which on a machine is busy


class StartTimeout:
    """Start timeout of workers, told now and then whether any worker is up.

    On a busy machine it is longer, by what was seen of it, and at its end workers are started anew, once.

    Attributes:
        failure: The reason why nobody should wait any longer, None until then.
        try_again: True if workers that have not come up should be started anew; whoever does it resets it.
    """

    def __init__(self, resources: ResourceSpec) -> None:
        self._limit = 60 * resources.start_minutes
        self._resources = resources
        self._since, self._noted = time.monotonic(), False
        self._slowdown, self._retried = 1.0, False
        self.failure: str | None = None
        self.try_again = False

    def note(self, run_id: str, up: bool) -> Iterator[Noted]:
        """Check the timeout, and yield its notes in the name of a run.

        Args:
            run_id: The id of a run that waits, "" if none does.
            up: True if any worker is up.
        """
        if up or not run_id:
            self._since = time.monotonic()
            return

        waited = time.monotonic() - self._since
        self._slowdown = max(self._slowdown, busy_machine.slowdown())
        if waited > self._limit * self._slowdown:
            failure = f"no worker has come up within {self._limit * self._slowdown / 60:.3g} minutes: {self._cause()}"
            if self._slowdown < _BUSY or self._retried:
                self.failure = failure
                return
            self._since, self._noted = time.monotonic(), True
            self._retried = self.try_again = True
            log.warning("workers are started anew", extra={"text": self._cause(), "seconds": waited})
            yield Noted(run_id, f"{failure}; trying once more")

        elif waited > NOTE_SECONDS and not self._noted:
            self._noted = True
            log.warning("runs wait for workers", extra={"text": self._cause(), "seconds": waited})
            yield Noted(run_id, f"no worker has come up for {waited:.0f} s: {self._cause()}")

    def _cause(self) -> str:
        need = f"each needs {in_words(needs(self._resources))}"
        if self._resources.workers > 1:
            need = f"a run needs {self._resources.workers}, {need}"
        busy = f"this machine is busy ({busy_machine.in_words()}), and " if self._slowdown >= _BUSY else ""
        return f"{need}; {busy}others may hold the cluster's places (`ray status` shows them)"


def because(reason: str) -> str:
    """Return a reason as it follows a statement; nothing for none."""
    return f": {reason}" if reason else ""
