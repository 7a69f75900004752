"""Random splits as part of an experiment: the seed of a run chooses its split, all splits are one row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mtlscale.data.prepared import load_prepared
from mtlscale.execution.plan import Datasets, make_plan, records_of
from mtlscale.execution.prepare import prepare
from mtlscale.records import Home, Ledger
from mtlscale.spec import Experiment, UserError
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
    assert records_of(experiment, home) == ()
    record = train(runs[1], load_prepared(data.folders[runs[1].data]))
    ledger.append(record)
    assert [found.seed for found in records_of(experiment, home)] == [1]
    plan = make_plan(experiment, runs, ledger.path, home, data)
    assert [planned.state for planned in plan.runs] == ["new", "done", "new"]
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
        ("[{name: synthetic, splits: 0}]", "splits: Input should be greater than or equal to 1"),
    ],
)
def test_splits_that_cannot_be(datasets: str, expected: str, small: Small) -> None:
    with pytest.raises(UserError, match=expected):
        load(small, datasets=datasets)
