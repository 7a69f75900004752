"""AMTRL and AAMTRL: gradients against plain autograd, what only watches, and what does not fit."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mtlscale.config import Experiment, Run, UserError, build
from mtlscale.data.readers.prepared import PreparedData
from mtlscale.objectives import adversarial_value, relatedness_matrix, relatedness_weights, reverse_gradient
from mtlscale.training import Trainer

Small = Callable[..., Experiment]
Uneven = Callable[..., PreparedData]
RunOf = Callable[[Experiment, PreparedData], Run]
EXACT = "{epochs: 3, batch_size: 16, lr: 1e-2, dtype: float64, optimizer: sgd, momentum: 0.9}"


@pytest.fixture
def trainer(small: Small, uneven: Uneven, run_of: RunOf) -> Callable[..., Trainer]:
    def make(method: str, training: str = EXACT) -> Trainer:
        data = uneven()
        return Trainer(run_of(small(methods=f"[{method}]", training=training), data), data)

    return make


def all_outputs(trainer: Trainer, indices: dict[str, Tensor]) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Discriminator outputs [N, T] on one step's samples with graph, their tasks [N], the tasks' mean losses."""
    logs, tasks, losses = [], [], []
    for batch in trainer.batches.micros(indices, 1)[0]:
        outputs = trainer.model(batch)
        logs.append(trainer.objective.log_probs(outputs.representation))
        tasks.append(torch.full((len(logs[-1]),), trainer.objective.places[batch.stream]))
        found = trainer.session.main.source.losses(batch, outputs)
        losses.append(found.sums[0] / found.counts[0])
    return torch.cat(logs).exp(), torch.cat(tasks), losses


def train(trainer: Trainer) -> list[dict]:
    return [epoch.traces for epoch in trainer.train()]


def test_the_reversal_is_the_identity_and_turns_the_gradient() -> None:
    x = torch.randn(4, 3, requires_grad=True)
    y = reverse_gradient(x, torch.tensor(0.7))
    assert torch.equal(y, x)
    (y**2).sum().backward()
    torch.testing.assert_close(x.grad, -0.7 * 2 * x.detach())
    assert not reverse_gradient(x, 0.0).requires_grad


@pytest.mark.parametrize("form", ["prob", "xent"])
@pytest.mark.parametrize(
    "method",
    [
        "{{objective: {{name: amtrl, strength: 0.7, form: {form}}}, balancer: equal}}",
        "{{objective: {{name: amtrl, strength: 0.7, form: {form}}}, balancer: {{name: cagrad, c: 0}}}}",
    ],
    ids=["losses", "gramian"],
)
def test_the_encoder_hides_with_strength_lambda_and_the_discriminator_learns_with_unit_weight(
    method: str, form: str, trainer: Callable[..., Trainer]
) -> None:
    """Gradients of the mean loss + λA at the encoder, of -A at the discriminator, however the step computes them."""
    run = trainer(method.format(form=form))
    indices = next(run.session.main.sampler.epoch(1))
    probs, tasks, losses = all_outputs(run, indices)
    a = adversarial_value(probs, tasks, form)
    shared = run.model.shared_parameters()
    of_encoder = torch.autograd.grad(sum(losses) / 3 + 0.7 * a, shared, retain_graph=True)
    of_discriminator = torch.autograd.grad(-a, list(run.objective.parameters()))
    run.session.step(run.session.main, run.batches.micros(indices, 1))
    for parameters, expected in ((shared, of_encoder), (run.objective.parameters(), of_discriminator)):
        for parameter, gradient in zip(parameters, expected, strict=True):
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-12)


def test_a_discriminator_that_only_watches_changes_nothing(trainer: Callable[..., Trainer]) -> None:
    for balancer in ("equal", "mgda"):
        plain, watched = (
            trainer(balancer),
            trainer(f"{{balancer: {balancer}, objective: {{name: amtrl, strength: 0}}}}"),
        )
        train(plain)
        traces = train(watched)
        for key, value in plain.model.state_dict().items():
            assert torch.equal(value, watched.model.state_dict()[key]), (balancer, key)
        assert traces[-1]["R_mean"] != traces[0]["R_mean"]


def test_traces_are_those_of_the_whole_training_set(trainer: Callable[..., Trainer]) -> None:
    run = trainer("aamtrl")
    traces = train(run)
    everything = {stream: torch.arange(len(samples)) for stream, samples in run.batches.whole("this test").items()}
    with torch.no_grad():
        probs, tasks, _ = all_outputs(run, everything)
    r = relatedness_matrix(probs, tasks)
    mean = r.mean(1)
    assert traces[-1]["A"] == pytest.approx(float(adversarial_value(probs, tasks)))
    assert traces[-1]["R_mean"] == pytest.approx(float(mean.mean()))
    assert traces[-1]["R_var"] == pytest.approx(float(((mean - mean.mean()) ** 2).mean()))
    torch.testing.assert_close(torch.tensor(traces[-1]["R"], dtype=torch.float64), r)
    torch.testing.assert_close(run.objective.task_weights() / 3, relatedness_weights(r))


def test_multiplier_penalty_and_weights_follow_the_algorithm(trainer: Callable[..., Trainer]) -> None:
    for rule, sign in (("ascent", 1), ("printed", -1)):
        traces = train(trainer(f"{{name: aamtrl, multiplier_rule: {rule}, multiplier: 3.0}}"))
        assert [trace["r"] for trace in traces] == [10, 12, 14]
        assert traces[0]["lambda"] == 3 and traces[0]["weights"] == pytest.approx([1 / 3] * 3)
        for before, after in itertools.pairwise(traces):
            assert after["lambda"] == pytest.approx(before["lambda"] + sign * before["r"] * before["A"])
            assert after["weights"] != before["weights"] and sum(after["weights"]) == pytest.approx(1)
    uniform = train(trainer("{name: aamtrl, uniform: true}"))
    assert all(trace["weights"] == pytest.approx([1 / 3] * 3) for trace in uniform)


def test_the_strength_follows_the_average_of_a_over_the_steps_before(trainer: Callable[..., Trainer]) -> None:
    run = trainer("{name: aamtrl, smoothing: 0.5}")
    steps = run.session.main.sampler.epoch(1)
    average = 0.0
    for _ in range(3):
        indices = next(steps)
        assert float(run.objective.strength()) == pytest.approx(max(0.0, 1 + 10 * average))
        with torch.no_grad():
            probs, tasks, _ = all_outputs(run, indices)
        average += 0.5 * (float(adversarial_value(probs, tasks)) - average)
        run.session.step(run.session.main, run.batches.micros(indices, 1))


def test_task_weights_scale_the_losses_before_they_are_balanced(trainer: Callable[..., Trainer]) -> None:
    run = trainer("{name: aamtrl, multiplier: 0, penalty: 0}")
    run.objective.weights.copy_(torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64))
    indices = next(run.session.main.sampler.epoch(1))
    _, _, losses = all_outputs(run, indices)
    weighted = sum(weight * loss for weight, loss in zip((0.5, 0.3, 0.2), losses, strict=True))
    expected = torch.autograd.grad(weighted, run.model.shared_parameters())
    run.session.step(run.session.main, run.batches.micros(indices, 1))
    for parameter, gradient in zip(run.model.shared_parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-12)


def test_hiding_the_task_makes_tasks_look_more_alike(trainer: Callable[..., Trainer]) -> None:
    training = "{epochs: 25, batch_size: 16, lr: 1e-2}"
    hidden = train(trainer("{name: aamtrl, form: xent}", training))
    watched = train(trainer("{objective: {name: amtrl, strength: 0, form: xent}}", training))
    assert hidden[-1]["R_mean"] > watched[-1]["R_mean"]
    assert abs(hidden[-1]["A"]) < watched[-1]["A"]


@pytest.mark.parametrize(
    ("options", "mistake"),
    [
        ({"strength": -1.0}, r"amtrl: strength = -1.0 is outside \[0, ∞\)"),
        ({"form": "hinge"}, r"amtrl: form = 'hinge' is outside prob \| xent"),
    ],
)
def test_settings_of_amtrl_out_of_range(options: dict, mistake: str) -> None:
    with pytest.raises(UserError, match=mistake):
        build("objectives", "amtrl", options)


@pytest.mark.parametrize(
    ("options", "mistake"),
    [
        ({"multiplier": -0.5}, r"aamtrl: multiplier = -0.5 is outside \[0, ∞\)"),
        ({"multiplier_rule": "descent"}, r"aamtrl: multiplier_rule = 'descent' is outside ascent \| printed"),
        ({"penalty": "much"}, "aamtrl: penalty = 'much' should be a number"),
    ],
)
def test_settings_of_aamtrl_out_of_range(options: dict, mistake: str) -> None:
    with pytest.raises(UserError, match=mistake):
        build("objectives", "aamtrl", options)


@pytest.mark.parametrize("name", ["amtrl", "aamtrl"])
def test_tasks_that_share_their_inputs_cannot_be_told_apart(
    name: str, small: Small, uneven: Uneven, run_of: RunOf
) -> None:
    data = uneven(shared=True)
    run = run_of(small(methods=f"[{name}]", datasets="[{name: uneven, options: {shared: true}}]"), data)
    with pytest.raises(UserError, match=f"{name} tells tasks apart by their inputs, which the tasks of uneven share"):
        Trainer(run, data)


@pytest.mark.parametrize("name", ["amtrl", "aamtrl"])
def test_networks_without_a_shared_representation_are_refused(name: str, trainer: Callable[..., Trainer]) -> None:
    with pytest.raises(UserError, match=f"{name} needs an architecture with one shared representation, such as hps"):
        trainer(f"{{architecture: stl, objective: {name}}}")
