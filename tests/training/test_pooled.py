"""Batches of the samples of all tasks together: what they estimate, and what must not change it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from mtlscale.config import Experiment, Run, UserError
from mtlscale.data import PreparedData
from mtlscale.training import Trainer

Small = Callable[..., Experiment]
Uneven = Callable[..., PreparedData]
RunOf = Callable[[Experiment, PreparedData], Run]

# Of four samples, some steps lack a task.
POOLED = "{batches: pooled, epochs: 2, batch_size: 4, lr: 1e-2, dtype: float64, optimizer: sgd, weight_decay: 0.01%s}"


def test_the_steps_of_an_epoch_add_up_to_a_tasks_mean_loss(small: Small, uneven: Uneven, run_of: RunOf) -> None:
    """(N / B) Σ_b L_b / N_t, weighted by the steps' shares B / N, of a task without missing labels and with parameters
    that stay as they are."""
    data = uneven()
    trainer = Trainer(run_of(small(methods="[{name: equal, reduction: sum}]", training=POOLED % ""), data), data)
    sizes = {name: len(samples) for name, samples in data.splits["train"].items()}
    total, updater, shared = sum(sizes.values()), trainer.session.main, trainer.model.shared_parameters()
    found, lacking = [torch.zeros_like(p) for p in shared], 0
    for indices, _ in updater.steps(1):
        factors, share = updater.sampler.factors(indices), sum(map(len, indices.values())) / total
        micros = trainer.batches.micros({"b": indices["b"]}, 1, factors=factors)
        if not micros[0]:
            lacking += 1
            continue
        updater.update([updater.source(micro) for micro in micros])
        for gradient, parameter in zip(found, shared, strict=True):
            gradient += share * (parameter.grad if parameter.grad is not None else torch.zeros(()))
    assert lacking and updater.sampler.steps == -(-total // 4)
    batch = trainer.batches.micros({"b": torch.arange(sizes["b"])}, 1)[0][0]
    loss = nn.functional.cross_entropy(trainer.model(batch).predictions["b"], batch.samples.targets["b"])
    for gradient, expected in zip(found, torch.autograd.grad(loss, shared), strict=True):
        torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("lines", "refusal"),
    [
        ({"datasets": "[{name: uneven, options: {shared: true}}]"}, "every sample of uneven has the labels"),
        ({"methods": "[auto_lambda]"}, "auto_lambda halves the training data"),
        ({"training": "{batches: pooled, reader: stream}"}, "the reader stream"),
    ],
)
def test_what_cannot_be_pooled_is_refused_in_a_line(
    lines: dict[str, str], refusal: str, small: Small, uneven: Uneven, run_of: RunOf
) -> None:
    data = uneven(shared="datasets" in lines)
    with pytest.raises(UserError, match=refusal) as caught:
        Trainer(run_of(small(**{"methods": "[equal]", "training": POOLED % "", **lines}), data), data)
    assert "\n" not in str(caught.value) and "set it to per_task" in str(caught.value)


def test_the_way_of_drawing_is_part_of_the_run(small: Small, uneven: Uneven, run_of: RunOf) -> None:
    data = uneven()
    plain, per_task, pooled = (
        run_of(small(methods="[equal]", training=f"{{epochs: 2{more}}}"), data).run_id
        for more in ("", ", batches: per_task", ", batches: pooled")
    )
    assert plain == per_task != pooled
