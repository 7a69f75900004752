"""NSGA-II over a search space: what it draws depends on how trials ended, not on when; what is known is not tried."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mtlscale.api import sweep
from mtlscale.config import Dimension, Knobs, SearchSpec, UserError, load_experiment
from mtlscale.data import PreparedData
from mtlscale.execution.planning.plan import Datasets
from mtlscale.execution.tuning.sweep import plan_sweep
from mtlscale.nas.evolution import Evolution, Exhausted
from mtlscale.records import Home

SEARCH = SearchSpec.model_validate({"algorithm": "nsga2", "objectives": ["accuracy", "parameters"], "population": 8})
SPACE = {
    "x": Dimension(low=1e-3, high=1.0, scale="log"),
    "whole": Dimension(low=1, high=9),
    "one_of": Dimension(choices=("a", "b", "c")),
    "text": Dimension(numbers=(3, 4, 2)),
}
WHOLE = {"x": False, "whole": True, "one_of": False, "text": False}


def values(knobs: Knobs) -> list[float]:
    ones = sum(map(int, knobs["text"].split()))
    return [knobs["whole"] + ones + knobs["x"], (9 - knobs["whole"]) + "abc".index(knobs["one_of"]) + knobs["x"]]


def tried(evolution: Evolution, count: int, together: int, seed: int = 0) -> list[Knobs]:
    """So many trials, so many at once, ending in a random order."""
    order, busy, found = random.Random(seed), list[Knobs](), list[Knobs]()
    while len(found) < count:
        while len(busy) < together and len(found) + len(busy) < count and (knobs := evolution.ask()) is not None:
            busy.append(knobs)
        done = busy.pop(order.randrange(len(busy)))
        evolution.tell(done, values(done))
        found.append(done)
    return found


def keys(found: list[Knobs]) -> list[str]:
    return sorted(map(str, found))


def test_settings_lie_in_the_space_and_become_better() -> None:
    found = tried(Evolution(SPACE, WHOLE, SEARCH), 64, 1)
    for knobs in found:
        assert 1e-3 <= knobs["x"] <= 1 and knobs["whole"] in range(1, 10) and knobs["one_of"] in "abc"
        assert all(int(n) < count for n, count in zip(knobs["text"].split(), (3, 4, 2), strict=True))
    assert len({str(knobs) for knobs in found}) == 64 and {type(knobs["whole"]) for knobs in found} == {int}
    runs = [found, *(tried(Evolution(SPACE, WHOLE, SEARCH.model_copy(update={"seed": s})), 64, 1) for s in (1, 2, 3))]
    sums = np.array([[sum(values(knobs)) for knobs in run] for run in runs])
    assert sums[:, -16:].mean() < sums[:, :8].mean() - 0.8


def test_neither_order_nor_number_of_trials_at_once_matters() -> None:
    one = tried(Evolution(SPACE, WHOLE, SEARCH), 40, 1)
    for together, seed in ((3, 1), (8, 2), (20, 3)):
        assert keys(tried(Evolution(SPACE, WHOLE, SEARCH), 40, together, seed)) == keys(one)


@pytest.mark.parametrize("before", [3, 8, 21])
def test_a_search_that_was_cut_off_goes_on_as_if_it_had_not_been(before: int) -> None:
    whole = tried(Evolution(SPACE, WHOLE, SEARCH), 40, 1)
    again = Evolution(SPACE, WHOLE, SEARCH)
    for knobs in whole[:before]:
        again.tell(knobs, values(knobs))
    assert tried(again, 40 - before, 1) == whole[before:]


def test_diverged_trials_and_small_spaces() -> None:
    space = {"one_of": Dimension(choices=("a", "b", "c")), "text": Dimension(numbers=(2, 2))}
    evolution = Evolution(space, dict.fromkeys(space, False), SEARCH)
    found = []
    with pytest.raises(Exhausted):
        while True:
            knobs = evolution.ask()
            assert knobs is not None
            found.append(str(knobs))
            evolution.tell(knobs, [float("inf"), float("nan")])
    assert len(set(found)) == len(found) <= 12 and len(found) >= 8


File = Callable[..., Path]
Prepare = Callable[..., PreparedData]
FRONT = "algorithm: nsga2, objectives: [loss, parameters], population: 3"


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ("{algorithm: nsga2}", "search.objectives are those of nsga2: name two or more"),
        ("{objectives: [loss, parameters]}", "search.objectives are those of nsga2: drop them"),
        ("{algorithm: nsga2, objectives: [error]}", "nsga2 weighs two or more against each other"),
        (f"{{{FRONT}, scheduler: asha}}", "search.scheduler asha compares one score; drop it with nsga2"),
        ("{algorithm: nsga2, objectives: [loss, flops]}", "ask for it in the `evaluation` of uneven"),
        ("{algorithm: nsga2, objectives: [loss, auroq]}", "runs on uneven have no 'auroq'"),
    ],
)
def test_bad_objectives(search: str, message: str, experiment_file: File, tmp_path: Path, uneven: Prepare) -> None:
    prepared = uneven()
    with pytest.raises(UserError, match=message):
        experiment = load_experiment(experiment_file(search=search))
        (name,) = experiment.data()
        plan_sweep(experiment, Home(tmp_path), Datasets({name: prepared.folder}, {name: prepared.manifest}))


@pytest.mark.ray
@pytest.mark.slow
def test_a_sweep_that_goes_on_ends_as_one_that_was_not_cut_off(
    experiment_file: File, tmp_path: Path, local_ray: None
) -> None:
    """Finished trials are not run again, and the others are those of a search in one go."""

    def trials(budget: int, home: str) -> dict[str, float]:
        space = "{training.lr: {low: 1e-3, high: 1e-1, scale: log}, model.encoder.hidden: [[4], [8], [16]]}"
        path = experiment_file(
            methods="[equal]",
            tracking="{enabled: false}",
            search=f"{{{FRONT}, budget: {budget}, space: {space}}}",
        )
        (found,) = sweep(load_experiment(path), home=Home(tmp_path / home)).trials.values()
        return {record.run_id: record.seconds for record in found}

    whole = trials(8, "whole")
    first = trials(4, "parts")
    both = trials(8, "parts")
    assert len(whole) == 8 and len(first) == 4 and both.keys() == whole.keys()
    assert first.items() <= both.items()  # with the times they had
