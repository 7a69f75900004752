"""The progress bar counts the epochs of all phases of all runs, however they are told."""

from __future__ import annotations

import dataclasses
import io
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from listening import planned
from rich.cells import cell_len
from rich.console import Console

from mtlscale.cli.output.progress import EpochLog, ExperimentBar, result_text
from mtlscale.config import Experiment, ResourceSpec, Run, load_plugin
from mtlscale.data import PreparedData, load_prepared
from mtlscale.execution import Job, Options, execute
from mtlscale.execution.planning.plan import Datasets
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.execution.tuning.sweep import plan_sweep
from mtlscale.records import Epoch, Home, RunRecord
from mtlscale.records.events import Advanced, EpochEnded, Event, Noted, RunBegun, RunEnded
from mtlscale.tracking.values import end_metrics
from mtlscale.training import train

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "two_phases.py"


def test_a_run_with_two_phases_has_the_epochs_of_both(
    small: Callable[..., Experiment],
    uneven: Callable[..., PreparedData],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    load_plugin(EXAMPLE)
    data = uneven()
    searched = "{architecture: {name: searched_sharing, search_epochs: 2}, balancer: equal}"
    experiment = small(methods=f"[{searched}, mgda]", training="{epochs: 4}")
    first, second = experiment.runs(dict.fromkeys(experiment.data(), data.manifest.fingerprint))
    monkeypatch.setenv("MTLSCALE_PROGRESS", "lines")
    monkeypatch.setattr("mtlscale.cli.output.progress._TELL_SECONDS", 0.0)
    screen = io.StringIO()
    with ExperimentBar(Console(file=screen, width=200), experiment) as bar:
        for event in (planned(first, second), RunBegun(first), RunBegun(second)):
            bar.take(event)
        for phase, number in (("search", 1), ("search", 2), ("retrain", 1)):
            bar.take(EpochEnded(first.run_id, Epoch(phase=phase, epoch=number, train_loss={}, seconds=0.0)))
        bar.take(Advanced((second.run_id,), 3))
        bar.take(Noted(second.run_id, "its checkpoint was cut off"))
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("progress: ")]
    assert [line.split()[1] for line in told] == ["1/10", "2/10", "3/10", "6/10"]
    assert f"uneven · {second.method} · seed 0: its checkpoint was cut off" in screen.getvalue()


def test_a_log_has_a_line_for_a_run_every_ten_seconds(
    small: Callable[..., Experiment], uneven: Callable[..., PreparedData]
) -> None:
    fingerprint = uneven().manifest.fingerprint
    runs = list(small(methods="[equal, mgda]", seeds="[0, 1, 2]").runs({"uneven": fingerprint}))
    now = 0.0
    log = EpochLog(lambda: now)

    def epoch(number: int) -> Epoch:
        scores = {"a": {"accuracy": 50.0, "f1": 1.0}, "b": {"accuracy": 70.0}}
        return Epoch(epoch=number, train_loss={"a": 1.0, "b": 2.0}, val=scores, seconds=0.0)

    assert log.line(runs[0], epoch(1)) is None  # quick runs write none
    now = 10.0
    line = "  uneven · equal · seed 0  epoch 2 of 3, training loss 1.5, validation accuracy 60"
    assert log.line(runs[0], epoch(2)) == line
    assert log.line(runs[0], epoch(3)) is None
    assert [log.line(run, epoch(1)) is None for run in runs[1:]] == [False, False, False, True, True]
    now = 20.0
    assert "epoch 3 of 3" in str(log.line(runs[0], epoch(3)))

    unlike = Epoch(epoch=1, train_loss={}, val={"a": {"accuracy": 5.0}, "c": {"mse": 0.25}}, seconds=0.0)
    assert str(log.line(runs[5], unlike)).endswith("epoch 1 of 3, a accuracy 5, c mse 0.25")


def test_a_file_gets_lines_of_epochs_and_a_terminal_none(
    small: Callable[..., Experiment], uneven: Callable[..., PreparedData], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtlscale.cli.output.progress._LOG_SECONDS", 0.0)
    data, experiment = uneven(), small(methods="[equal]")
    (run,) = experiment.runs({"uneven": data.manifest.fingerprint})
    for terminal in (False, True):
        screen = io.StringIO()
        with ExperimentBar(Console(file=screen, width=200, force_terminal=terminal), experiment) as bar:
            epoch = EpochEnded(run.run_id, Epoch(epoch=1, train_loss={"a": 1.0}, seconds=0.0))
            for event in (planned(run), RunBegun(run), epoch):
                bar.take(event)
        assert ("epoch 1 of 3, training loss 1" in screen.getvalue()) is not terminal


def test_unlike_metrics_have_no_mean_in_progress_and_mlflow(
    small: Callable[..., Experiment], uneven: Callable[..., PreparedData]
) -> None:
    data = uneven()
    experiment = small(methods="[equal]", training="{epochs: 1, batch_size: 16}")
    (run,) = experiment.runs({"uneven": data.manifest.fingerprint})
    record = train(run, data)
    test = record.metrics["test"]
    told = [f"{task} {metric} {test[task][metric]:.4g}" for task, metric in record.main_metrics.items()]
    assert result_text(record) == " · ".join(told) and "c mse" in result_text(record)
    keys = {key for key, _, _ in end_metrics(record, 1)}
    assert "test.mse.c" in keys and not any(key.endswith(".mean") for key in keys)
    alike = record.model_copy(
        update={
            "main_metrics": {"a": "accuracy", "b": "accuracy"},
            "metrics": {"test": {"a": {"accuracy": 60.0}, "b": {"accuracy": 70.0}}},
        }
    )
    assert result_text(alike) == "accuracy 65"
    assert ("test.mean", 65.0, 1) in end_metrics(alike, 1)
    many = {f"task{index}": "accuracy" if index else "mse" for index in range(5)}
    values = {task: {metric: 1.0} for task, metric in many.items()}
    assert result_text(record.model_copy(update={"main_metrics": many, "metrics": {"test": values}})).endswith(
        "· 2 more"
    )


def test_a_failure_says_where_it_arose_and_how_to_see_the_rest(
    small: Callable[..., Experiment], uneven: Callable[..., PreparedData], tmp_path: Path
) -> None:
    (tmp_path / "flaky.py").write_text(
        "from mtlscale.balancing import balancer\n\n\n@balancer()\ndef flaky(losses):\n"
        "    if losses.sum() != 3.0:\n        raise ValueError('no [luck] today')\n    return losses * 0 + 0.5\n"
    )
    load_plugin(tmp_path / "flaky.py")
    data = uneven()
    (run,) = small(methods="[flaky]", floors="[]").runs({"uneven": data.manifest.fingerprint})
    *_, end = execute(Job(run, data.folder, tmp_path / run.run_id), Options(ResourceSpec()))
    assert isinstance(end, RunEnded) and end.record.error == "flaky.py:7: ValueError: no [luck] today"

    screen = io.StringIO()
    with ExperimentBar(Console(file=screen, width=60), small(methods="[flaky]", floors="[]")) as bar:
        for event in (planned(run), RunBegun(run), end):
            bar.take(event)
    line = f"failed: flaky.py:7: ValueError: no [luck] today (mtlscale show {run.run_id[:8]})"
    assert line in screen.getvalue()


def test_a_search_speaks_every_so_often(
    small: Callable[..., Experiment], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("mtlscale.cli.output.progress._SEARCH_SECONDS", 0.02)
    experiment = small(search="{budget: 3}", datasets="[digits]", methods="[equal]", floors="[]")
    home = Home(tmp_path)
    data = Datasets.prepare(experiment, lambda name: prepare("digits", {}, None, home.root))
    plan, spoken, screen = plan_sweep(experiment, home, data), threading.Event(), io.StringIO()

    class Screen(Console):
        def print(self, *parts: object, **settings: object) -> None:
            super().print(*parts, **settings)  # type: ignore[arg-type]
            if "of 3 trials" in str(parts):
                spoken.set()

    with ExperimentBar(Screen(file=screen, width=60), experiment) as bar:
        bar.take(plan.planned(1))
        assert spoken.wait(60)
        trials = plan.plan.todo
        bar.take(RunBegun(trials[0], is_trial=True))
        bar.take(Advanced((trials[0].run_id,), trials[0].epochs))
        assert "1 of 3 trials" not in screen.getvalue()
        record = train(trials[0], load_prepared(data.folders["digits"]))
        score = plan.score(record)
        assert score is not None
        bar.take(RunEnded(trials[0].run_id, record, score))
        line = bar._search_line()
    assert (
        line.startswith("  1 of 3 trials, ")
        and " gone, about " in line
        and line.endswith(f"best so far: digits {score[0]:.4g} (equal)")
    )
    bar._speaker.stop()
    assert bar._speaker._thread is not None and not bar._speaker._thread.is_alive()


def test_the_last_counts_of_a_job_are_in_its_log(
    small: Callable[..., Experiment], uneven: Callable[..., PreparedData], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    data = uneven()
    experiment = small(methods="[equal, mgda, stl]")
    runs = list(experiment.runs({"uneven": data.manifest.fingerprint}))
    monkeypatch.setenv("MTLSCALE_PROGRESS", "lines")  # a line a second at most
    with ExperimentBar(Console(file=io.StringIO()), experiment) as bar:
        bar.take(planned(*runs))
        for run in runs:
            bar.take(RunBegun(run))
            bar.take(RunEnded(run.run_id, train(run, data)))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("progress: ")]
    assert lines[-1] == f"progress: {3 * len(runs)}/{3 * len(runs)} epochs, {len(runs)}/{len(runs)} runs"


def ended(run: Run, record: RunRecord) -> list[Event]:
    return [RunBegun(run), RunEnded(run.run_id, record.model_copy(update={"run_id": run.run_id, "seed": run.seed}))]


def test_a_terminal_has_one_bar_with_counts_and_the_newest_result(
    small: Callable[..., Experiment], uneven: Callable[..., PreparedData]
) -> None:
    """No line for a run that finishes, one for the first failure of a method; all of them with `verbose`."""
    data, experiment = uneven(), small(methods="[equal]", seeds="[0, 1, 2, 3]")
    runs = list(experiment.runs({"uneven": data.manifest.fingerprint}))
    record = train(runs[0], data)
    failed = record.model_copy(update={"status": "failed", "error": "no luck"})
    for verbose in (False, True):
        screen = io.StringIO()
        console = Console(file=screen, width=80, force_terminal=True, color_system=None)
        with ExperimentBar(console, experiment, verbose=verbose) as bar:
            bar.take(planned(*runs))
            for event in ended(runs[0], record) + ended(runs[1], failed) + ended(runs[2], failed):
                bar.take(event)
            bar.take(RunBegun(runs[3]))
            bar.take(EpochEnded(runs[3].run_id, Epoch(epoch=1, train_loss={}, seconds=0.0)))
            assert bar._counts() == "3/4 runs, 1 running, 2 failed"
            assert str(bar._newest_line()).startswith("newest: uneven · equal · seed 2  failed: no luck (mtlscale show")
            shown = Console(file=io.StringIO(), width=80)
            shown.print(*bar._bar.get_renderables())
        lines = shown.file.getvalue().splitlines()  # type: ignore[attr-defined]
        assert len(lines) == 2 and max(map(cell_len, lines)) <= 80
        assert "small" in lines[0] and "3/4 runs, 1 running, 2 failed" in lines[0] and "left" in lines[0]

        plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue()).replace("\r", "\n")
        said = [line for line in plain.splitlines() if line.startswith("  uneven · equal · seed")]
        assert ["failed" in line for line in said] == ([False, True, True] if verbose else [True])


def test_a_search_in_a_terminal_says_its_best_below_the_bar(small: Callable[..., Experiment], tmp_path: Path) -> None:
    experiment = small(search="{budget: 2}", datasets="[digits]", methods="[equal]", floors="[]")
    home, screen = Home(tmp_path), io.StringIO()
    data = Datasets.prepare(experiment, lambda name: prepare("digits", {}, None, home.root))
    plan = plan_sweep(experiment, home, data)
    trial = plan.plan.todo[0]
    record = train(trial, load_prepared(data.folders["digits"]))
    with ExperimentBar(Console(file=screen, width=80, force_terminal=True), experiment) as bar:
        event = plan.planned(1)
        bar.take(dataclasses.replace(event, lines=tuple(f"line {number}" for number in range(9))))
        bar.take(RunBegun(trial, is_trial=True))
        bar.take(RunEnded(trial.run_id, record, plan.score(record)))
        assert str(bar._newest_line()).startswith("newest: digits · equal  best so far ")
        assert bar._counts() == "1/2 trials, 0 running, 0 failed"
    text = screen.getvalue()
    assert "line 3" in text and "line 4" not in text and "and 5 lines more with --verbose or --dry-run" in text
    assert "\n  digits · equal  best so far" not in text
