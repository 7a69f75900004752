"""How much there is to do: epochs and steps of a run with all its phases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from listening import Listening, board_of

from mtlscale.config import Experiment, Run, UserError, load_plugin
from mtlscale.data import PreparedData
from mtlscale.execution import Datasets, Plan, make_plan, own_board
from mtlscale.execution.preparing.experiment_data import prepare_data
from mtlscale.execution.sinks import Sinks
from mtlscale.records import Epoch, EpochFile, Home, Ledger, write_atomically
from mtlscale.report.results import Results
from mtlscale.training import train

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@pytest.mark.parametrize(
    ("method", "epochs"),
    [
        ("equal", 3),
        ("meta_weighting", 3),  # works on one half of the training data
        ("{architecture: gated, balancer: equal}", 3),  # so do both turns of this one
        ("{architecture: {name: searched_sharing, search_epochs: 4}, balancer: equal}", 7),
    ],
)
def test_epochs_and_steps_are_those_of_all_phases(
    method: str,
    epochs: int,
    small: Callable[..., Experiment],
    uneven: Callable[..., PreparedData],
    run_of: Callable[[Experiment, PreparedData], Run],
) -> None:
    for name in ("bilevel", "two_phases"):
        load_plugin(EXAMPLES / f"{name}.py")
    data = uneven(shared=True)
    experiment = small(
        methods=f"[{method}]",
        datasets="[{name: uneven, options: {shared: true}}]",
        training="{epochs: 3, batch_size: 16}",
    )
    run = run_of(experiment, data)
    plan = Plan(experiment, board_of(run), Datasets({}, {run.data: data.manifest}))
    record = train(run, data)
    assert (run.epochs, plan.steps(run)) == (epochs, record.steps) and record.status == "finished"
    assert [run.epochs_behind(epoch.phase, epoch.epoch) for epoch in record.epochs] == list(range(1, epochs + 1))


def test_who_watches_hears_which_data_set_is_prepared_and_where(
    small: Callable[..., Experiment], tmp_path: Path
) -> None:
    listening = Listening()
    data = prepare_data(small(), Home(tmp_path), None, False, Sinks(listening))
    heard = listening.prepared
    assert heard == list(data.folders.items()) and [name for name, _ in heard] == ["uneven"]


@pytest.mark.parametrize("shared", [False, True])
def test_a_share_of_the_samples_is_a_share_of_the_steps(
    shared: bool, small: Callable[..., Experiment], uneven: Callable[..., PreparedData]
) -> None:
    options = f"options: {{shared: {str(shared).lower()}}}"
    experiment = small(methods="[equal, meta_weighting]", datasets=f"[{{name: uneven, train: 0.4, {options}}}]")
    data = uneven(shared=shared)
    prepared = Datasets.prepare(experiment, lambda name: data.folder)
    plan = Plan(experiment, board_of(), prepared)
    for run in experiment.runs(prepared.fingerprints):
        assert run.data == "uneven 40 %"
        record = train(run, data)
        assert record.status == "finished" and record.steps <= plan.steps(run) <= 1.5 * record.steps
        whole = Plan(experiment, board_of(), Datasets({}, {run.data: data.manifest})).steps(run)
        assert plan.steps(run) < whole


def test_a_share_of_one_task_is_a_share_of_its_samples(
    small: Callable[..., Experiment], uneven: Callable[..., PreparedData]
) -> None:
    experiment = small(datasets="[{name: uneven, train: {a: 0.4}}, {name: uneven, label: wrong, train: {z: 0.4}}]")
    data = uneven()
    prepared = Datasets.prepare(
        experiment.model_copy(update={"datasets": experiment.datasets[:1]}), lambda _: data.folder
    )
    (counts,) = (manifest.counts for manifest in prepared.manifests.values())
    whole = data.manifest.counts
    assert counts["a"]["train"] == round(0.4 * whole["a"]["train"]) and counts["b"] == whole["b"]
    with pytest.raises(UserError, match="unknown task 'z'"):
        Datasets.prepare(experiment, lambda _: data.folder)


def test_a_share_of_what_passes_by_is_refused_before_anything_starts(
    small: Callable[..., Experiment], uneven: Callable[..., PreparedData], tmp_path: Path
) -> None:
    experiment = small(datasets="[{name: uneven, train: 0.4, training: {reader: stream}}]")
    data = Datasets.prepare(experiment, lambda name: uneven().folder)
    runs = experiment.runs(data.fingerprints)
    with pytest.raises(UserError, match="train: the reader stream has all of uneven pass by"):
        make_plan(experiment, runs, tmp_path / "ledger.jsonl", Home(tmp_path), data)


def test_an_epoch_without_a_phase_is_of_the_only_one(
    small: Callable[..., Experiment], uneven: Callable[..., PreparedData], run_of: Callable[..., Run]
) -> None:
    run = run_of(small(methods="[equal]"), uneven())
    epoch = Epoch(epoch=2, train_loss={}, seconds=0.0)
    assert run.epochs_behind(epoch.phase, epoch.epoch) == 2


def test_a_board_joins_what_is_wanted_with_what_is_known(
    small: Callable[..., Experiment], uneven: Callable[..., PreparedData], tmp_path: Path
) -> None:
    """Rows come without epochs; the report reads those of the runs that it draws."""
    experiment, home = small(methods="[stl, equal, uncertainty]", seeds="[0, 1]"), Home(tmp_path)
    data = uneven()
    datasets = Datasets({"uneven": data.folder}, {"uneven": data.manifest})
    runs, ledger = list(experiment.runs(datasets.fingerprints)), Ledger(home.ledger("small"))
    trained = [train(run, data) for run in runs[:-1]]
    rows = [record.model_copy(update={"epochs": []}) for record in trained]
    for record in trained[:-1]:
        ledger.append(record.model_copy(update={"status": "failed", "error": "once", "metrics": {}}))
        ledger.append(record)
        EpochFile(home.run(record.run_id)).take(record.epochs)
    other = trained[-1].model_copy(update={"experiment": "another", "method": "its label"})  # finished elsewhere
    write_atomically(home.run(other.run_id) / "record.json", other.model_dump_json().encode())

    board = make_plan(experiment, runs, ledger.path, home, datasets).board
    assert [board.state(one) for one in board.wanted] == ["done"] * 5 + ["new"]
    assert [one.run for one in board.missing] == runs[-1:]
    assert list(board.unlisted()) == rows[-1:] and board.records == tuple(rows)
    assert (board.counts.total, board.counts.finished, board.counts.left) == (6, 5, 1)
    board.take(rows[-1])
    assert own_board(experiment, home).records == tuple(rows) and not list(board.unlisted())

    results = Results(experiment, board.records, home.experiment("small"))
    assert results.epochs(runs[0].run_id) == trained[0].epochs
    page = results.write_report()["html"].read_text()
    assert "Training loss" in page
    for run in runs:
        (home.run(run.run_id) / "epochs.jsonl").unlink(missing_ok=True)
    (home.experiment("small") / "report.json").unlink()
    assert "Training loss" not in results.write_report()["html"].read_text()
