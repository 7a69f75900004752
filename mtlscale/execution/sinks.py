"""The sinks of an experiment, all of which hear everything, and guests among them, which may fail."""

from __future__ import annotations

from collections.abc import Callable

from mtlscale.config import UserError
from mtlscale.records.events import Event, Noted, Planned, Sink


class Sinks:
    """Several sinks as one, each of which gets every event in its turn."""

    def __init__(self, *sinks: Sink) -> None:
        self._sinks = list(sinks)

    def take(self, event: Event) -> None:
        for sink in self._sinks:
            sink.take(event)

    def note(self, text: str) -> None:
        """Say something about the experiment to all of them."""
        self.take(Noted("", text))


class Guest:
    """A sink that may fail: its error is said once, and the runs go on without it.

    It may refuse the experiment with a `UserError` before anything is trained.
    """

    def __init__(self, sink: Sink, note: Callable[[str], None]) -> None:
        self._sink, self._note, self.failed = sink, note, False

    def take(self, event: Event) -> None:
        if self.failed:
            return
        try:
            self._sink.take(event)
        except Exception as error:
            if isinstance(event, Planned) and isinstance(error, UserError):
                raise
            self.failed = True
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            self._note(f"the sink {type(self._sink).__name__} gets nothing from here on ({reason}); the runs go on")
