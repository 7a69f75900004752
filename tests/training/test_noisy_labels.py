"""Training with wrong labels: what methods that look at the data make of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mtlscale.batched.eligibility import planning
from mtlscale.config import Experiment, Run, UserError, load_experiment
from mtlscale.data import PreparedData, load_prepared
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.training import Trainer

Small = Callable[..., Experiment]
RunOf = Callable[[Experiment, PreparedData], Run]


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return load_prepared(prepare("digits", {}, None, tmp_path_factory.mktemp("home")))


def weights(experiment: Experiment, data: PreparedData, run_of: RunOf) -> torch.Tensor:
    state = Trainer(run_of(experiment, data), data).session.main.update.state
    found: torch.Tensor = state["weights"]
    return found


@pytest.mark.parametrize("rank", [1, 2])
def test_svd_weights_fall_with_the_noise_of_a_task(
    rank: int, small: Small, digits: PreparedData, run_of: RunOf
) -> None:
    first, *others = [task.name for task in digits.suite.tasks[:3]]
    found = []
    for share in (0.0, 0.2, 0.5):
        datasets = (
            f"[{{name: digits, tasks: [{first}, {', '.join(others)}], noise: {{share: {share}, tasks: [{first}]}}}}]"
        )
        experiment = small(datasets=datasets, methods=f"[{{name: svd_reweighting, rank: {rank}}}]")
        found.append(weights(experiment, digits, run_of))
    noisy = [float(one[0]) for one in found]
    assert noisy[0] > noisy[1] > noisy[2]
    assert noisy[2] < 0.5 * float(found[2][1:].min())  # pure chance counts less than half of what has labels


@pytest.mark.parametrize(
    ("noisy", "noise", "expected"),
    [
        ("0.5", "{share: 0.2, tasks: [B]}", [1.2, 0.6, 1.2]),
        ("0", "{share: 0.2, tasks: [B]}", [1.5, 0.0, 1.5]),
        ("0", "{share: 0.2}", [1.0, 1.0, 1.0]),  # of every task: nothing to tell apart
        ("0", "0", [1.0, 1.0, 1.0]),
    ],
)
def test_an_oracle_weighs_the_tasks_with_noise_alone(
    noisy: str, noise: str, expected: list[float], small: Small, digits: PreparedData, run_of: RunOf
) -> None:
    names = [task.name for task in digits.suite.tasks[:3]]
    datasets = f"[{{name: digits, tasks: [{', '.join(names)}], noise: {noise.replace('B', names[1])}}}]"
    experiment = small(datasets=datasets, methods=f"[{{name: noise_oracle, noisy: {noisy}}}]")
    torch.testing.assert_close(weights(experiment, digits, run_of), torch.tensor(expected).double())


def test_features_are_what_the_heads_read(small: Small, uneven: Callable[..., PreparedData], run_of: RunOf) -> None:
    """With an encoder that passes inputs through they are the inputs, for readers that hold no whole set, too."""
    data = uneven(shared=True)
    through = "{encoder: {name: mlp, hidden: []}}"
    found = {}
    for inputs, reader in (("raw", "device"), ("features", "device"), ("features", "mapped"), ("features", "stream")):
        experiment = small(
            datasets="[{name: uneven, options: {shared: true}}]",
            methods=f"[{{name: svd_reweighting, inputs: {inputs}}}]",
            model=through,
            training=f"{{epochs: 1, batch_size: 16, dtype: float64, reader: {reader}, eval_batch_size: 7}}",
        )
        found[inputs, reader] = weights(experiment, data, run_of)
        run = run_of(experiment, data)
        assert (planning.obstacle(run, data.suite) is None) == (inputs == "raw")
    for one in found.values():
        torch.testing.assert_close(one, found["raw", "device"])
    deep = small(
        datasets="[{name: uneven, options: {shared: true}}]", methods="[{name: svd_reweighting, inputs: features}]"
    )
    assert not torch.allclose(weights(deep, data, run_of), found["raw", "device"])


def test_features_want_an_encoder_that_all_heads_read(
    experiment_file: Callable[..., Path], uneven: Callable[..., PreparedData], run_of: RunOf
) -> None:
    data = uneven(shared=True)
    method = "{architecture: stl, balancer: {name: svd_reweighting, inputs: features}}"
    experiment = load_experiment(
        experiment_file(datasets="[{name: uneven, options: {shared: true}}]", methods=f"[{method}]")
    )
    with pytest.raises(UserError, match="looks at the features that all heads read, and this architecture has none"):
        Trainer(run_of(experiment, data), data)
