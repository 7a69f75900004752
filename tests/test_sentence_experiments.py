"""The experiments on sentences: all pairs in both forms, the published sizes in the full ones."""

from __future__ import annotations

import itertools

import pytest

from mtlscale.config import load_experiment
from pipelines.text.sentences import DEFAULT

FORMS = ("cpu", "full")


@pytest.mark.parametrize("form", FORMS)
def test_every_pair_of_the_six_tasks_is_there_once(form: str) -> None:
    experiment = load_experiment(f"sentences_pairs_{form}")
    named = [tuple(dataset.options["tasks"]) for dataset in experiment.datasets]
    assert named == list(itertools.combinations(DEFAULT, 2))
    assert [dataset.label for dataset in experiment.datasets] == [" + ".join(pair) for pair in named]
    assert {"stl", "equal", "aligned"} <= {method.label for method in experiment.methods}
    assert len(experiment.seeds) >= 3


@pytest.mark.parametrize("form", FORMS)
def test_capacities_differ_in_one_size_alone(form: str) -> None:
    experiment = load_experiment(f"sentences_capacity_{form}")
    encoders = [dataset.model["encoder"] for dataset in experiment.datasets]
    assert len({str({k: v for k, v in encoder.items() if k != "hidden"}) for encoder in encoders}) == 1
    assert len({str(encoder["hidden"]) for encoder in encoders}) == len(encoders) >= 5
    assert len({str(dataset.options) for dataset in experiment.datasets}) == 1


@pytest.mark.parametrize("form", FORMS)
def test_figure_5b_tunes_the_whole_network_of_sst(form: str) -> None:
    """With and without R, for 5 to 10 epochs, on all six tasks; the size is SST-2's best."""
    experiment = load_experiment(f"sentences_from_sst_{form}")
    assert not experiment.datasets[0].options.get("tasks")
    tuned = {m.label: m.architecture.options for m in experiment.methods if m.architecture.name == "aligned"}
    for label in ("tuned", "tuned_aligned"):
        options = tuned[label]
        assert (options["source_task"], options["freeze_shared"]) == ("SST-2", False)
        assert 5 <= options["align_epochs"] <= 10
        assert options.get("turning", True) == (label == "tuned_aligned")
    assert experiment.model.encoder.options["hidden"] in (200, [200])


@pytest.mark.parametrize("name", ["glue_pairs_full", "glue_five_full"])
def test_glue_has_the_printed_settings(name: str) -> None:
    experiment = load_experiment(name)
    assert experiment.model.encoder.options["tune"] == "frozen"
    training = experiment.training
    assert (training.lr, training.epochs, len(experiment.seeds)) == (2e-5, 5, 5)
    assert len(experiment.datasets) == (10 if name == "glue_pairs_full" else 1)


@pytest.mark.parametrize("study", ["pairs", "six", "capacity"])
def test_the_full_form_has_the_published_sizes(study: str) -> None:
    experiment = load_experiment(f"sentences_{study}_full")
    encoders = [dataset.model.get("encoder", experiment.model.encoder) for dataset in experiment.datasets]
    for encoder in encoders:
        told = encoder if isinstance(encoder, dict) else {"name": encoder.name, **encoder.options}
        assert (told["name"], told["dimensions"]) == ("lstm", 300)
        assert study == "capacity" or told["hidden"] == 200
    if study == "capacity":
        assert {5, 100, 200, 500} <= {encoder["hidden"] for encoder in encoders}
    assert len(experiment.seeds) == 5
