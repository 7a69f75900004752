"""Random splits as part of an experiment: the seed of a run chooses its split, all splits are one row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mtlscale.config import SHIPPED, Experiment, UserError, load_experiment
from mtlscale.data.readers.prepared import load_prepared
from mtlscale.execution.finding.own_board import own_board
from mtlscale.execution.planning.plan import Datasets, make_plan
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.records import Home, Ledger
from mtlscale.training import train

Small = Callable[..., Experiment]
DATA = "{name: synthetic, splits: 2, options: {features: 4, tasks: 3, samples: 40}}"


def load(small: Small, **lines: str) -> Experiment:
    return small(**{"datasets": f"[{DATA}]", "seeds": "[0, 1, 2]", "methods": "[stl, equal]", **lines})


def prepared(experiment: Experiment, home: Path) -> Datasets:
    def folder(name: str) -> Path:
        dataset, seed = experiment.data()[name]
        pipeline = dataset.build(seed)
        options = {knob: getattr(pipeline, knob) for knob in type(pipeline).knobs()}
        return prepare(dataset.name, options, None, home)

    return Datasets.prepare(experiment, folder)


def test_the_seed_chooses_the_split(small: Small, tmp_path: Path) -> None:
    experiment = load(small)
    data = prepared(experiment, tmp_path)
    assert list(data.folders) == ["synthetic/0", "synthetic/1"]
    assert data.fingerprints["synthetic/0"] != data.fingerprints["synthetic/1"]
    runs = list(experiment.runs(data.fingerprints))
    assert len({run.run_id for run in runs}) == len(runs) == 6
    for run in runs:
        assert run.dataset == "synthetic" and run.data == f"synthetic/{run.seed % 2}"
        assert run.fingerprint == data.fingerprints[run.data] and run.spec["dataset"]["split"] == run.seed % 2


def test_one_split_is_what_it_was(small: Small) -> None:
    """Run ids of experiments without splits do not depend on there being such a thing."""
    plain = "[{name: synthetic, options: {features: 4, tasks: 3, samples: 40}}]"
    with_one = plain.replace("name: synthetic,", "name: synthetic, splits: 1,")
    ids = [
        [run.run_id for run in load(small, datasets=datasets).runs({"synthetic": "f"})]
        for datasets in (plain, with_one)
    ]
    assert ids[0] == ids[1]
    assert list(load(small, datasets=plain).data()) == ["synthetic"]


def test_records_of_some_splits_are_reported_before_the_others_are_there(small: Small, tmp_path: Path) -> None:
    experiment = load(small, methods="[equal]", training="{epochs: 1, batch_size: 16}")
    home = Home(tmp_path / "home")
    data = prepared(experiment, home.root)
    runs = list(experiment.runs(data.fingerprints))
    ledger = Ledger(home.ledger(experiment.name))
    assert own_board(experiment, home).records == ()
    record = train(runs[1], load_prepared(data.folders[runs[1].data]))
    ledger.append(record)
    assert [found.seed for found in own_board(experiment, home).records] == [1]
    plan = make_plan(experiment, runs, ledger.path, home, data)
    assert [plan.board.state(one) for one in plan.board.wanted] == ["new", "done", "new"]
    assert plan.steps(runs[0]) == 2


@pytest.mark.parametrize(
    ("datasets", "expected"),
    [
        ("[{name: digits, splits: 3}]", "dataset digits: digits comes with its own split; drop `splits`"),
        ("[{name: amazon, splits: 3}]", "dataset amazon: amazon comes with its own split; drop `splits`"),
        (
            "[{name: synthetic, splits: 3, options: {split: 1}}]",
            "`splits` chooses the option `split` by seed",
        ),
        ("[{name: synthetic, splits: 0}]", "splits: should be greater than or equal to 1"),
    ],
)
def test_splits_that_cannot_be(datasets: str, expected: str, small: Small) -> None:
    with pytest.raises(UserError, match=expected):
        load(small, datasets=datasets)


@pytest.mark.parametrize(("splits", "seed", "refused"), [(2, 1000, True), (4, 1001, True), (4, 1003, False)])
def test_a_search_has_a_split_of_its_own(splits: int, seed: int, refused: bool, small: Small) -> None:
    datasets = f"[{DATA.replace('splits: 2', f'splits: {splits}')}]"
    lines = {"datasets": datasets, "search": f"{{budget: 1, seed: {seed}}}"}
    if not refused:
        assert list(load(small, **lines).data()) == [f"synthetic/{split}" for split in (0, 1, 2, 3)]
        return
    with pytest.raises(UserError, match=f"search.seed {seed} tunes on split {seed % splits} of synthetic"):
        load(small, **lines)


TOMATO = sorted(path.stem for path in SHIPPED.glob("tomato_*.yaml"))


@pytest.mark.parametrize("name", TOMATO)
def test_no_shipped_search_tunes_on_what_it_reports(name: str) -> None:
    experiment = load_experiment(name)
    if experiment.search is not None:
        assert all(dataset.splits == 11 for dataset in experiment.datasets)


@pytest.mark.parametrize("name", ["tomato_common", "tomato_table3", "tomato_table4"])
def test_the_reduced_grid_lies_within_the_whole_one(name: str) -> None:
    small, full = load_experiment(name), load_experiment(f"{name}_full")
    assert small.search is not None and full.search is not None
    assert [m.label for m in small.methods] == [m.label for m in full.methods]
    for method in small.methods:
        whole = {**full.search.space, **full.search.methods.get(method.label, {})}
        for path, part in {**small.search.space, **small.search.methods.get(method.label, {})}.items():
            if path != "training.weight_decay":  # the small forms were made before the factor of two of λ0
                assert set(map(str, part.levels())) <= set(map(str, whole[path].levels())), (method.label, path)
            assert path != "training.weight_decay" or 0 in part.levels()
            assert path != "objective.strength" or 0 in part.levels()
    assert all(e.training.batches == "pooled" and e.training.batch_size == 512 for e in (small, full))
