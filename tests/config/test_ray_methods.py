"""Methods with several rays in an experiment file: one method for each ray, one row for all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mtlscale.config import UserError, load_experiment, read_outline
from mtlscale.config.experiment.experiment import Experiment


def written(folder: Path, methods: str, more: str = "") -> Path:
    file = folder / "rays.yaml"
    file.write_text(f"description: d\ndatasets: [digits]\nfloors: []\nmethods: {methods}\n{more}")
    return file


def test_a_method_with_rays_is_one_method_for_each(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "[{name: epo, rays: 3}, {label: slow, balancer: {smooth: {of: {pbi: {theta: 2.0}}}}, "
        "rays: [[0.8, 0.2], [0, 1]]}, equal]",
    )
    experiment = load_experiment(file)
    labels = ["epo ray 1 of 3", "epo ray 2 of 3", "epo ray 3 of 3", "slow ray 0.8 0.2", "slow ray 0 1", "equal"]
    assert [method.label for method in experiment.methods] == labels
    assert [method.row for method in experiment.methods] == [*["epo"] * 3, *["slow"] * 2, "equal"]
    assert experiment.methods[1].balancer.options == {"ray": "2 of 3"}
    assert experiment.methods[3].balancer.options["of"] == {"name": "pbi", "theta": 2.0, "preference": [0.8, 0.2]}
    assert Experiment.model_validate(experiment.model_dump(mode="json")) == experiment
    runs = list(experiment.runs(dict.fromkeys(experiment.data(), "")))
    assert len({run.run_id for run in runs}) == len(labels)
    assert [run.row for run in runs] == [method.row for method in experiment.methods]
    assert [row.label for row in read_outline(file).methods] == labels


def test_a_search_tries_the_middle_ray_and_all_rays_get_its_winner(tmp_path: Path) -> None:
    search = "search: {budget: 2, seed: 9, methods: {epo: {balancer.tolerance: {low: 0.001, high: 0.01, scale: log}}}}"
    experiment = load_experiment(written(tmp_path, "[{name: epo, rays: 3}, equal]", search))
    fingerprints = dict.fromkeys(experiment.data(), "")
    assert [run.method for run in experiment.bases(fingerprints)] == ["epo ray 2 of 3", "equal"]
    chosen = {("digits", "epo ray 2 of 3"): {"training.lr": 0.5}}
    rates = {run.method: run.training.lr for run in experiment.runs(fingerprints, chosen)}
    assert [rates[f"epo ray {ray} of 3"] for ray in (1, 2, 3)] == [0.5] * 3
    assert rates["equal"] != 0.5


@pytest.mark.parametrize(
    ("method", "text"),
    [
        ("{name: epo, rays: [[0.7, 0.7]]}", r"rays: preference \[0.7, 0.7\] sums to 1.4; make it sum to 1"),
        ("{name: epo, rays: [[-0.5, 1.5]]}", r"rays: preference \[-0.5, 1.5\] has a negative number"),
        ("{name: epo, rays: [[0.5, 0.5], [1]]}", "rays: has preferences of different lengths"),
        ("{name: epo, rays: [[0.5, 0.5], [0.5, 0.5]]}", "rays: has a preference twice"),
        ("{name: epo, rays: 0}", "rays: should be a number of even rays, or a list of preferences"),
        ("{name: epo, rays: [0.5, 0.5]}", "rays: should be a number of even rays, or a list of preferences"),
        ("{name: mgda, rays: 3}", "method mgda: rays: mgda takes no preference; choose linear_scalarization"),
        ("{name: stl, rays: 3}", "method stl: rays: equal takes no preference"),
        ("{balancer: {smooth: {of: mgda}}, rays: 3}", r"method smooth\(mgda\): rays: mgda takes no preference"),
        ("{name: epo, ray: 1 of 2, rays: 3}", "method epo: has rays, and a ray of its balancer; drop one"),
    ],
)
def test_what_are_no_rays_is_said_in_one_line(tmp_path: Path, method: str, text: str) -> None:
    with pytest.raises(UserError, match=text) as caught:
        load_experiment(written(tmp_path, f"[{method}]"))
    assert "\n" not in str(caught.value)


def test_rays_that_the_tasks_do_not_have_are_refused_before_anything_starts(tmp_path: Path) -> None:
    from mtlscale.execution.planning.plan import check_preferences

    run: Any = next(load_experiment(written(tmp_path, "[{name: epo, rays: [[0.5, 0.5]]}]")).runs({"digits": ""}))
    with pytest.raises(UserError, match="epo: preference has 2 entries, but there are 10 tasks"):
        check_preferences(run, tasks=10)
