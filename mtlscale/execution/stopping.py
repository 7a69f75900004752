"""Handling of Ctrl-C and the signals of schedulers: the first ends all in good order, a second Ctrl-C at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from mtlscale.records.events import Event, Planned

# A terminal that closes, and what schedulers send before the time is up. A driver that is alone gets them all; the
# daemons and workers of its local Ray share its process group and are not to hear of them.
_NOTICES = tuple(getattr(signal, name) for name in ("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU") if hasattr(signal, name))
SIGNALS = (signal.SIGINT, signal.SIGTERM, *_NOTICES)


class Interrupted(KeyboardInterrupt):
    """The interruption of a driver, raised once its workers have ended and MLflow's runs are closed.

    Its text is one line for the user; `status` is the exit status that belongs to it: 130 for Ctrl-C, 143 for SIGTERM.
    """

    def __init__(self, text: str, status: int = 130) -> None:
        super().__init__(text)
        self.status = status


class DoneCount:
    """The sink of what is planned; an interruption of its block tells how much of it is done."""

    def __init__(self) -> None:
        self._planned: Planned | None = None

    def take(self, event: Event) -> None:
        if isinstance(event, Planned):
            self._planned = event

    def __enter__(self) -> DoneCount:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        if isinstance(error, Interrupted) and self._planned is not None:
            board, total = self._planned.board, self._planned.total
            noun = "runs" if self._planned.search is None else "trials"
            done = f"{len(board.distinct) - len(board.missing)} of {total} {noun} are done"
            raise Interrupted(f"interrupted: {done}; the same command resumes", error.status) from None


class Stop:
    """The request to stop, if there was one, and the signal that made it."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self.signals: tuple[int, ...] = ()  # that it handles
        self._raised = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            if number == signal.SIGINT:
                print("mtlscale: left at once; the same command resumes", file=sys.stderr, flush=True)
                os._exit(128 + number)  # local Ray and its workers go with this process
            return
        self.signal = number
        raise KeyboardInterrupt  # a class of our own would not pass through Ray

    def check(self) -> None:
        """Raise again where something has swallowed the interruption: an exception in a callback is lost."""
        if self.signal is not None and not self._raised:
            raise KeyboardInterrupt

    def caught(self) -> None:
        self._raised = True


_current: Stop | None = None


@contextmanager
def stopping() -> Iterator[Stop]:
    """Raise `KeyboardInterrupt` on these signals in the main thread, for the duration; do nothing in other threads.

    A signal that is ignored, as SIGHUP below `nohup`, stays so.
    """
    global _current
    stop = Stop()
    if _current is not None or threading.current_thread() is not threading.main_thread():
        yield stop
        return

    before: dict[int, Any] = {number: signal.getsignal(number) for number in SIGNALS}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    _current = stop
    stop.signals = tuple(before)
    handle_again()

    try:
        yield stop
    finally:
        _current = None
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def handle_again() -> None:
    """Install the handlers again: Ray replaces them when it starts, and nothing would end in good order."""
    if _current is not None and threading.current_thread() is threading.main_thread():
        for number in _current.signals:
            signal.signal(number, _current.handle)


@contextmanager
def deaf_children() -> Iterator[None]:
    """Have the processes that start meanwhile hear no notice of a scheduler; ours comes when this is over."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _NOTICES)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
