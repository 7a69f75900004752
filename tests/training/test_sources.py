"""What is differentiated: sums of the tasks' losses over what is labelled, weighted where samples are."""

from __future__ import annotations

import torch

from mtlscale.config import Task, TaskSuite
from mtlscale.config.registry import components
from mtlscale.data import Batch, Samples
from mtlscale.training import SupervisedSource

SUITE = TaskSuite(
    name="s",
    tasks=tuple(Task(name=n, loss="cross_entropy", outputs=2, metrics=("accuracy",)) for n in ("one", "two")),
    inputs="shared",
    input_kind="vector",
    input_shape=(3,),
)


def source() -> SupervisedSource:
    torch.manual_seed(0)
    encoder = components.build("encoders", "mlp", {"hidden": [4]})
    model = components.build("architectures", "hps").build(SUITE, lambda: encoder.build(SUITE), 0.0)
    return SupervisedSource(model, SUITE)


def batch(weights: list[float] | None) -> Batch:
    inputs = torch.arange(12.0).reshape(4, 3) / 10
    targets = {"one": torch.tensor([0, 1, 1, -1]), "two": torch.tensor([1, 1, 0, 0])}
    return Batch("all", Samples(inputs, targets, None if weights is None else torch.tensor(weights)), 4)


def test_a_weight_multiplies_a_samples_loss_and_not_the_count() -> None:
    of = source()
    [plain] = of([batch(None)])
    singles = []
    for place in range(4):
        [found] = of([batch([float(place == at) for at in range(4)])])
        singles.append(torch.stack(found.sums))
    [mixed] = of([batch([2.0, 0.0, 0.5, 7.0])])
    torch.testing.assert_close(torch.stack(plain.sums), sum(singles))
    torch.testing.assert_close(torch.stack(mixed.sums), 2 * singles[0] + 0.5 * singles[2] + 7 * singles[3])
    assert singles[3][0] == 0  # without a label
    assert [int(count) for count in mixed.counts] == [int(count) for count in plain.counts] == [3, 4]


def test_sizes_are_those_of_the_whole_step() -> None:
    assert source().sizes([[batch(None)]]) == [4.0, 4.0]
