"""Progress of an experiment on the terminal."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from mtlscale.cli.output.json_events import JsonEvents, labelled_note
from mtlscale.cli.output.preparation import PreparationBar
from mtlscale.cli.output.terminal import runs_bar
from mtlscale.records.events import (
    Advanced,
    DatasetPrepared,
    EpochEnded,
    Event,
    Noted,
    Planned,
    Preparing,
    RunBegun,
    RunEnded,
    Watching,
)
from mtlscale.records.scores import beats
from mtlscale.records.scores import score as score_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID
    from rich.text import Text

    from mtlscale.config import Experiment, Run, SearchSpec
    from mtlscale.execution.job_progress import JobProgress
    from mtlscale.records import Epoch, RunRecord, Score

_TELL_SECONDS = 1.0  # between two lines of progress
_LOG_SECONDS = 10.0  # between two lines about the epochs of a run, in a log
_MOST_LINES = 4  # about epochs in `_LOG_SECONDS`, of all runs together
_MOST_TASKS = 3  # of unlike metrics in a line
_LONGEST_NAME = 24  # of an experiment, beside its bar
_MOST_PLAN_LINES = 4  # about how trials are executed, in a terminal
_SEARCH_SECONDS = 60.0  # between two lines about a search, in a log
_ID_LETTERS = 8  # of a run's id that tell it from others


class ExperimentBar:
    """Progress bar of an experiment: runs done, running and failed, the time left, and the newest result.

    `verbose`, and a console that is no terminal, have a line for every run that ends.
    """

    def __init__(self, console: Console, experiment: Experiment, *, verbose: bool = False) -> None:
        self._console = console
        self._verbose = verbose or not console.is_terminal
        self._newest = ""
        self._bar = runs_bar(console, self._newest_line)
        self._name = experiment.name
        self._short_name = self._name if len(self._name) <= _LONGEST_NAME else f"{self._name[: _LONGEST_NAME - 1]}…"
        self._task: TaskID | None = None
        self._running: set[str] = set()
        self._failed_methods: set[tuple[str, str]] = set()
        self._failed = 0
        self._left: dict[str, int] = {}
        self._runs: dict[str, tuple[Run, bool]] = {}  # run_id -> the run, and whether it is a trial
        self._done = self._total = 0
        self._last_line = float("-inf")
        self._printed: JobProgress | None = None
        self._noun = "runs"
        self._log = None if console.is_terminal else EpochLog()
        self._speaker = Speaker(lambda: console.print(self._search_line(), highlight=False, soft_wrap=True))

    def __enter__(self) -> ExperimentBar:
        self._status = self._console.status("preparing data")
        self._status.start()
        self._preparation: PreparationBar | None = None
        return self

    def __exit__(self, *_: object) -> None:
        self._speaker.stop()
        self._end_preparation()
        self._status.stop()
        self._bar.stop()
        if self._task is not None:
            self._print_line(last=True)

    def take(self, event: Event) -> None:
        """Show an event of the experiment."""
        match event:
            case Watching(experiment, counts):
                self._status.update(f"{experiment}: {counts.finished} of {counts.total} runs are done")
            case Preparing(dataset, stage, rows, total, size):
                if self._preparation is None:
                    self._status.stop()
                    self._preparation = PreparationBar(self._console, dataset).__enter__()
                self._preparation(stage, rows, total, size)
            case DatasetPrepared():
                self._end_preparation()
                self._status.update("starting Ray")
                self._status.start()
            case Planned() if event.search is not None:
                self._search(event, event.search)
            case Planned():
                self._plan(event)
            case RunBegun(run, is_trial):
                self._runs[run.run_id] = run, is_trial
                self._running.add(run.run_id)
            case Advanced(run_ids, epochs):
                for run_id in run_ids:
                    self._advance(run_id, self._runs[run_id][0].epochs - epochs)
            case EpochEnded(run_id, epoch):
                self._epoch(run_id, epoch)
            case RunEnded(run_id, record, score):
                self._end(run_id, record, score)
            case Noted(run_id, text):
                full_text = labelled_note(self._runs[run_id][0], text) if run_id in self._runs else text
                self._console.print(f"[yellow]{full_text}[/yellow]", soft_wrap=True)

    def _end_preparation(self) -> None:
        if self._preparation is not None:
            self._preparation.__exit__()
            self._preparation = None

    def _search(self, planned: Planned, search: SearchSpec) -> None:
        """Start the bar of a search; trials pass too quickly for a line each, so only a method's new best gets one."""
        self._status.stop()
        board = planned.board
        done_count = len(board.distinct) - len(board.missing)
        if done_count:
            self._console.print(f"{done_count} of {planned.total} trials are done already")
        shown = planned.lines if self._verbose else planned.lines[:_MOST_PLAN_LINES]
        for line in shown:
            self._console.print(line, soft_wrap=True, highlight=False)
        if len(shown) < len(planned.lines):
            not_shown = len(planned.lines) - len(shown)
            self._console.print(f"and {not_shown} lines more with --verbose or --dry-run", highlight=False)

        self._best: dict[tuple[str, str], Score] = {}
        for record in board.records:
            if (value := score_of(record, search.metric)) is not None:
                self._is_best(record, value)

        self._left = {trial.run_id: trial.run.epochs for trial in board.missing if trial.run is not None}
        self._done, self._total, self._noun = done_count, planned.total, "trials"
        unplanned = planned.total - done_count - len(self._left)
        total = sum(self._left.values()) + unplanned * planned.trial_epochs

        self._task = self._bar.add_task(self._short_name, total=total, counts=self._counts())
        self._bar.start()
        if not self._console.is_terminal:
            self._speaker.start()

    def _search_line(self) -> str:
        """Return where a search stands: its trials, the best so far of each data set, and the time left."""
        task = self._bar.tasks[-1]
        elapsed, completed = task.elapsed or 0.0, task.completed
        parts = [f"{self._done} of {self._total} trials", f"{_minutes(elapsed)} gone"]
        if completed and task.total:
            parts.append(f"about {_minutes(elapsed * max(0.0, task.total - completed) / completed)} left")
        best: dict[str, tuple[str, Score]] = {}
        for (dataset, method), score in list(self._best.items()):
            if dataset not in best or beats(score, best[dataset][1]):
                best[dataset] = method, score
        best_scores = ", ".join(f"{dataset} {score[0]:.4g} ({method})" for dataset, (method, score) in best.items())
        return f"  {', '.join(parts)}; best so far: {best_scores or 'none yet'}"

    def _is_best(self, record: RunRecord, score: Score) -> bool:
        key = (record.dataset, record.method)
        if key in self._best and not beats(score, self._best[key]):
            return False
        self._best[key] = score
        return True

    def _plan(self, planned: Planned) -> None:
        self._speaker.stop()
        self._status.stop()
        if self._task is not None:
            self._bar.remove_task(self._task)

        missing = planned.board.missing
        self._done, self._noun = 0, "runs"
        if planned.total > len(missing):
            self._console.print(f"{planned.total - len(missing)} of {planned.total} runs are done already")
        if not missing:
            return

        self._left = {
            planned_run.run_id: planned_run.run.epochs for planned_run in missing if planned_run.run is not None
        }
        self._total = len(missing)
        self._console.print(f"{self._name}: {self._total} runs, {planned.slots} at a time")
        self._task = self._bar.add_task(self._short_name, total=sum(self._left.values()), counts=self._counts())
        self._bar.start()

    def _counts(self) -> str:
        """Return how many runs are done, running and failed."""
        return f"{self._done}/{self._total} {self._noun}, {len(self._running)} running, {self._failed} failed"

    def _newest_line(self) -> Text | None:
        from rich.text import Text

        return Text(self._newest, style="dim", no_wrap=True, overflow="ellipsis") if self._newest else None

    def _advance(self, run_id: str, remaining: int) -> None:
        previous = self._left.get(run_id, self._runs[run_id][0].epochs)
        self._left[run_id] = remaining
        assert self._task is not None  # `Planned` came first
        self._bar.update(self._task, advance=max(0, previous - remaining), counts=self._counts())
        self._print_line()

    def _print_line(self, *, last: bool = False) -> None:
        """Print the bar as a line in a job, for whoever follows its log; the last counts however soon."""
        now = time.monotonic()
        if os.environ.get("MTLSCALE_PROGRESS") != "lines" or (now - self._last_line < _TELL_SECONDS and not last):
            return
        from mtlscale.execution.job_progress import JobProgress

        task = self._bar.tasks[-1]
        progress = JobProgress(int(task.completed), int(task.total or 0), self._done, self._total)
        if progress != self._printed:
            print(progress, flush=True)
        self._last_line, self._printed = now, progress

    def _epoch(self, run_id: str, epoch: Epoch) -> None:
        run, is_trial = self._runs[run_id]
        self._advance(run_id, run.epochs - run.epochs_behind(epoch.phase, epoch.epoch))
        if self._log is not None and not is_trial and (line := self._log.line(run, epoch)):
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _end(self, run_id: str, record: RunRecord, score: Score | None) -> None:
        from mtlscale.report.sweeps.search_study import settings_text

        run, is_trial = self._runs[run_id]
        is_finished, first_failure = record.status == "finished", False
        self._done += 1
        self._running.discard(run_id)
        if not is_finished:
            self._failed += 1
            first_failure = (run.dataset, run.method) not in self._failed_methods
            self._failed_methods.add((run.dataset, run.method))
        self._advance(run_id, 0)

        name = f"{run.dataset} · {run.method}"
        if not is_trial:
            text = f"{result_text(record)}  {record.seconds:6.1f} s" if is_finished else _failure(record)
            self._say(f"{name} · seed {run.seed}  {text}", always=first_failure)
        elif record.status == "failed":
            self._say(f"{name}  {_failure(record, f' with {settings_text(run.trial)}')}", always=first_failure)
        elif score is not None and self._is_best(record, score):
            self._say(f"{name}  best so far {score[0]:8.4g}  {settings_text(run.trial)}")

    def _say(self, markup: str, *, always: bool = False) -> None:
        """Show a result below the bar, and as a line of its own where lines are wanted."""
        from rich.text import Text

        self._newest = f"newest: {Text.from_markup(markup).plain}"
        if self._verbose or always:
            self._console.print(f"  {markup}", highlight=False, soft_wrap=True)


def _failure(record: RunRecord, settings: str = "") -> str:
    """Return what became of a run that did not finish, and the command that shows the rest, as rich's markup."""
    from rich.markup import escape

    text = f"{settings}: {record.error} (mtlscale show {record.run_id[:_ID_LETTERS]})"
    return f"[red]{record.status}[/red]{escape(text)}"


class Speaker:
    """A line every minute, from a thread, however long nothing else happens."""

    def __init__(self, speak: Callable[[], None]) -> None:
        self._speak = speak
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._work, name="search log", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while not self._ended.wait(_SEARCH_SECONDS):
            self._speak()


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


class EpochLog:
    """Log that replaces the bar: a run's latest epoch, at most once in ten seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._latest: dict[str, float] = {}  # run -> when its last line was written
        self._lines: deque[float] = deque(maxlen=_MOST_LINES)  # when the last lines of all runs were written

    def line(self, run: Run, epoch: Epoch) -> str | None:
        """Return the line about an epoch, or None where the run, or all runs together, wrote one too recently."""
        now = self._clock()
        crowded = len(self._lines) == _MOST_LINES and now - self._lines[0] < _LOG_SECONDS
        if crowded or now - self._latest.get(run.run_id, self._began) < _LOG_SECONDS:
            return None

        self._latest[run.run_id] = now
        self._lines.append(now)
        behind = run.epochs_behind(epoch.phase, epoch.epoch)
        parts = [f"epoch {behind} of {run.epochs}"]
        if epoch.train_loss:
            parts.append(f"training loss {sum(epoch.train_loss.values()) / len(epoch.train_loss):.4g}")
        parts += _validation(epoch)
        return f"  {run.dataset} · {run.method} · seed {run.seed}  {', '.join(parts)}"


def _validation(epoch: Epoch) -> list[str]:
    """Return the first metric on validation: its mean if all tasks have it, else that of the first tasks."""
    first_metrics = {task: next(iter(values.items())) for task, values in epoch.val.items() if values}
    names = {name for name, _ in first_metrics.values()}
    if len(names) == 1:
        mean = sum(value for _, value in first_metrics.values()) / len(first_metrics)
        return [f"validation {names.pop()} {mean:.4g}"]
    return [f"{task} {name} {value:.4g}" for task, (name, value) in list(first_metrics.items())[:_MOST_TASKS]]


def result_text(record: RunRecord) -> str:
    """Return a run's result on test: the mean over tasks of a shared metric, else the first tasks' metrics."""
    test = record.metrics["test"]
    values = {task: test[task][metric] for task, metric in record.main_metrics.items() if task in test}
    if record.shared_metric is not None:
        return f"{record.shared_metric} {sum(values.values()) / len(values):.4g}"
    texts = [f"{task} {record.main_metrics[task]} {value:.4g}" for task, value in values.items()]
    hidden_count = len(texts) - _MOST_TASKS
    return " · ".join(texts[:_MOST_TASKS] + ([f"{hidden_count} more"] if hidden_count > 0 else []))


class Errors:
    """The sink that says what went wrong, on standard error, and nothing else."""

    def __enter__(self) -> Errors:
        return self

    def __exit__(self, *_: object) -> None: ...

    def take(self, event: Event) -> None:
        if isinstance(event, RunEnded) and event.record.status != "finished":
            record = event.record
            text = f"{record.status}: {record.error} (mtlscale show {record.run_id[:_ID_LETTERS]})"
            print(f"{record.dataset} · {record.method} · seed {record.seed}: {text}", file=sys.stderr)


def sink_of(
    console: Console, experiment: Experiment, *, quiet: bool, json: bool, verbose: bool = False
) -> ExperimentBar | Errors | JsonEvents:
    """Return the sink that the options ask for: a bar, errors alone, or one JSON object per line."""
    if json:
        return JsonEvents()
    return Errors() if quiet else ExperimentBar(console, experiment, verbose=verbose)
