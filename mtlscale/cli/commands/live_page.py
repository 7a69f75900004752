"""The command that shows a run live in a browser: a page on this machine alone, built anew when runs end."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mtlscale.cli.options import HomeOption, SetOption, console_of, home_of
from mtlscale.config import UserError

if TYPE_CHECKING:
    from mtlscale.config import Experiment
    from mtlscale.records import Counts, Home

HOST = "127.0.0.1"
_NAMES = (HOST, "localhost")  # under any other name the request comes from somebody else's page
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data: blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
}


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(epilog="Example: mtlscale watch quickstart")(watch)


def watch(
    experiment: Annotated[str, typer.Argument(help="A YAML file, or the name of a shipped experiment")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the page; 0 takes a free one")] = 0,
    set_: SetOption = None,
    home: HomeOption = None,
) -> None:
    """Show the results of an experiment in a browser, live while it runs: on this machine alone, until Ctrl-C."""
    from mtlscale.config import load_experiment

    watched = Watched(load_experiment(experiment, tuple(set_ or ())), home_of(home))
    try:
        server = serving(watched, port)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"--port {port}: {reason}; choose another, or 0 for a free one") from None

    console = console_of()
    # Asked before the address is printed: CPython dies of the signal where Ctrl-C falls into the `exec` of a dataclass
    # that an import makes, although the exception is caught.
    status = watched.status_line()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts it in the background takes it away
    with contextlib.suppress(KeyboardInterrupt), server:
        console.print(f"http://{HOST}:{server.server_port}/", soft_wrap=True, highlight=False)
        console.print(f"{status}  Ctrl-C ends the page, not the run.", soft_wrap=True, highlight=False)
        server.serve_forever(poll_interval=0.2)


@dataclass
class Watched:
    """Experiment of a home folder, and its page as it was last built."""

    experiment: Experiment
    home: Home
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _built: tuple[str, str] | None = None  # mark of the results, and the page
    _own: tuple[float, set[str]] | None = None  # time of the plan, and the file's runs if it has none of them
    _counts: tuple[tuple[str, float], Counts] | None = None  # mark of the results and time of the plan, and the counts

    def results(self) -> str:
        """Return a mark that changes with every run that ends; "none" before the first."""
        try:
            ledger_file = self.home.ledger(self.experiment.name).stat()
        except OSError:
            return "none"
        return f"{ledger_file.st_mtime_ns}-{ledger_file.st_size}"

    def page(self) -> str:
        """Return the experiment's page, or one that waits for the first run; simultaneous requests build it once."""
        from mtlscale.execution.finding.own_board import own_board
        from mtlscale.report.formats.pages import rendered
        from mtlscale.report.results import Results

        with self._lock:
            state = self.results()
            if self._built is None or self._built[0] != state:
                board = None if state == "none" else own_board(self.experiment, self.home)
                if board is not None and board.records:
                    folder = self.home.experiment(self.experiment.name)
                    text = Results(self.experiment, board.records, folder, notes=board.unsettled).page(live=state)
                else:
                    name = self.experiment.name
                    text = rendered("waiting.html", title=f"{name} · mtlscale", name=name, live=state, waiting=True)
                self._built = (state, text)
            return self._built[1]

    def state(self) -> dict[str, Any]:
        """Return the state that the page requests every two seconds."""
        snapshot = self._status()
        return {
            "results": self.results(),
            "runs": snapshot.total,
            "done": snapshot.finished,
            "failed": snapshot.failed,
            "diverged": snapshot.diverged,
            "left": snapshot.left,
            "last": snapshot.last,
            "said": self.status_line(snapshot),
        }

    def status_line(self, status: Counts | None = None) -> str:
        """Return the status of the experiment in a line."""
        from mtlscale.records import holder_of

        status = status or self._status()
        folder = self.home.experiment(self.experiment.name)
        holder, now = holder_of(folder), time.time()
        if status.total == 0:
            if trials := _count_lines(self.home.trials(self.experiment.name)):
                return f"The search so far: {trials} trials."
            return "Nothing has been started yet; waiting." if holder is None else "Waiting for the first run."

        parts = [f"{status.finished} of {status.total} runs done"]
        problems = {"failed": status.failed, "diverged": status.diverged}
        parts += [f"{count} {state}" for state, count in problems.items() if count]
        parts += [f"{status.left} left"] if status.left else []

        if status.last:
            parts.append(f"last ended {_span(now - datetime.fromisoformat(status.last).timestamp())} ago")
        if holder is not None:
            parts.append(f"running for {_span(now - holder.since)}")
        elif status.left:
            parts.append("nobody runs it now; `mtlscale run` goes on")
        return f"{', '.join(parts)}."

    def _status(self) -> Counts:
        """Return how far the runs of the last start have come, or those that the file has now if none of them is."""
        from mtlscale.execution.finding.own_board import own_board
        from mtlscale.execution.planning.status import PLAN, counts_at_start, read_plan
        from mtlscale.records import Counts, Ledger

        name = self.experiment.name
        try:
            started = (self.home.experiment(name) / PLAN).stat().st_mtime
        except OSError:
            return counts_at_start(self.home, name)
        if self._own is None or self._own[0] != started:
            own = {one.run_id for one in own_board(self.experiment, self.home).wanted}
            noted = {one.run_id for one in read_plan(self.home, name) or ()}
            self._own = started, own if noted.isdisjoint(own) else set()

        mark, own_ids = (self.results(), started), self._own[1]
        if self._counts is None or self._counts[0] != mark:
            counts = counts_at_start(self.home, name)
            if own_ids:
                counts = Counts.of(own_ids, Ledger(self.home.ledger(name)).endings())
            self._counts = mark, counts
        return self._counts[1]


def serving(watched: Watched, port: int = 0) -> ThreadingHTTPServer:
    """Return a server of the page at / and its state at /state.json, on the loopback interface."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self._is_asked_by_name():
                self._answer(421, "text/plain", f"this page is at http://{HOST}:{self.server.server_port}/\n")  # type: ignore[attr-defined]
                return
            path = self.path.partition("?")[0]
            if path == "/":
                self._answer(200, "text/html", watched.page())
            elif path == "/state.json":
                self._answer(200, "application/json", json.dumps(watched.state()))
            else:
                self._answer(404, "text/plain", "there is only /\n")

        def _is_asked_by_name(self) -> bool:
            """Return whether the request names this machine: a foreign name that points here could read the page."""
            name, _, port = self.headers.get("Host", "").partition(":")
            return name in _NAMES and port in ("", str(self.server.server_port))  # type: ignore[attr-defined]

        def _answer(self, status: int, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            for name, value in {**_HEADERS, "Content-Type": f"{kind}; charset=utf-8"}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass  # a line every two seconds says nothing

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        allow_reuse_address = False  # a port that somebody has is an error

        def handle_error(self, *_: Any) -> None:
            pass  # of readers that went away

    return Server((HOST, port), Handler)


def _count_lines(path: Path) -> int:
    try:
        with path.open("rb") as file:
            return sum(1 for _ in file)
    except OSError:
        return 0


def _span(seconds: float) -> str:
    seconds = max(0, int(seconds))
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 2 * 3600:
        return f"{seconds // 60} min"
    return f"{seconds // 3600} h" if seconds < 48 * 3600 else f"{seconds // 86400} days"
