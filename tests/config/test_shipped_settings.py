"""What shipped files say as their papers print it, where a run would not notice."""

from __future__ import annotations

import itertools
from collections import defaultdict

import pytest

from mtlscale.config import UserError, load_experiment
from mtlscale.config.registry import components
from mtlscale.config.search.trials import trials

AAMTRL = ("aamtrl_amazon", "aamtrl_full", "aamtrl_newsgroups", "aamtrl_number_of_tasks", "aamtrl_number_of_tasks_full")


@pytest.mark.parametrize("name", AAMTRL)
def test_aamtrls_mgda_looks_at_the_representation_and_amtrls_strength_varies(name: str) -> None:
    experiment = load_experiment(name)
    runs = list(experiment.runs(defaultdict(lambda: "f00d")))
    (balancer,) = {run.parts.balancer.at for run in runs if run.method.startswith("mgda")}
    assert balancer == "representation"

    strengths = {run.parts.objective.strength for run in runs if run.method.startswith("amtrl")}
    if experiment.search is not None:
        (base,) = (run for run in experiment.bases(defaultdict(lambda: "f00d")) if run.method == "amtrl"
                   and run.dataset == experiment.datasets[0].label)  # fmt: skip
        strengths = {run.parts.objective.strength for run in trials(experiment.search, base)}
    assert len(strengths) >= 3 and min(strengths) < 1 < max(strengths)


@pytest.mark.parametrize("name", ["aamtrl_number_of_tasks", "aamtrl_number_of_tasks_full"])
def test_one_task_is_in_every_set_and_sets_grow(name: str) -> None:
    sets = [set(dataset.options.get("domains", ())) for dataset in load_experiment(name).datasets]
    assert sets.pop() == set()  # all fourteen
    assert all("apparel" in chosen for chosen in sets)
    assert all(small < large for small, large in itertools.pairwise(sets))


@pytest.mark.parametrize("name", ["getmtl_amazon_full", "getmtl_newsgroups_full"])
def test_only_epsilon_is_searched_as_printed(name: str) -> None:
    search = load_experiment(name).search
    assert search is not None and not search.space
    searched = {label: set(space) for label, space in search.methods.items() if space}
    assert searched == {label: {"balancer.eps"} for label in ("getmtl", "getmtl_relative", "getmtl_released")}
    assert {0.0075, 0.025} <= set(search.methods["getmtl"]["balancer.eps"].choices)


def test_what_tasks_do_that_left_is_a_setting_of_conal_pro_alone() -> None:
    with pytest.raises(UserError, match="left"):
        components.build("architectures", "conal", {"left": "train"})
    with pytest.raises(UserError, match=r"conal_pro: left = 'stay'.*rest \| train"):
        components.build("architectures", "conal_pro", {"left": "stay"})
