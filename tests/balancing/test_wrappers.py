"""Wrappers: what they change in what a balancer is told and answers, and what they leave as it is."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

from mtlscale.balancing.contract import balance
from mtlscale.config import UserError, load_experiment
from mtlscale.config.registry.components import build
from mtlscale.config.run.run_parts import IDENTITY, settings

TASKS = 4
INSIDE = ["equal", "dwa", "famo", "mgda", "cagrad", "nash_mtl", "pcgrad", "gradnorm", "consmtl"]


def problem(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Losses above 1, so that their logarithms are positive, too, and the Gramian of seven parameters."""
    generator = torch.Generator().manual_seed(seed)
    jacobian = torch.randn(TASKS, 7, generator=generator, dtype=torch.float64)
    return 1.5 + torch.rand(TASKS, generator=generator, dtype=torch.float64), jacobian @ jacobian.T


@pytest.mark.parametrize("name", INSIDE)
def test_smooth_averages_the_weights_that_the_balancer_alone_would_give(name: str) -> None:
    alone, smooth = build("balancers", name), build("balancers", "smooth", {"of": name, "alpha": 0.7})
    state, wrapped_state, average = alone.init(TASKS, seed=3), smooth.init(TASKS, seed=3), None
    for step in range(4):
        losses, gramian = problem(step)
        weights, state = alone(losses, gramian, state)
        smoothed, wrapped_state = smooth(losses, gramian, wrapped_state)
        average = weights.numpy() if average is None else 0.7 * average + 0.3 * weights.numpy()
        np.testing.assert_allclose(smoothed.numpy(), average, rtol=1e-12, atol=1e-14)
        state, wrapped_state = alone.on_epoch_end(losses, state), smooth.on_epoch_end(losses, wrapped_state)


def test_smooth_keeps_the_average_of_a_task_without_labels() -> None:
    smooth = build("balancers", "smooth", {"of": "rlw", "alpha": 0.5})
    losses, gramian = problem(0)
    first, state = smooth(losses, gramian, smooth.init(TASKS, seed=1))
    present = torch.tensor([True, False, True, True])
    weights, state = balance(smooth, losses, gramian, state, present)
    assert weights[1] == 0
    assert state["smooth.weights"][1] == first[1], "the average of the absent task"
    assert not torch.equal(state["smooth.weights"][0], first[0])

    _, late = balance(smooth, losses, gramian, smooth.init(TASKS, seed=1), present)
    assert late["smooth.seen"].tolist() == [3, 0, 3, 3], "a task's average begins in its first step"


@pytest.mark.parametrize("name", ["equal", "rlw", "mgda", "cagrad", "imtl_g", "nash_mtl"])
def test_log_losses_do_not_see_the_scale_of_a_loss(name: str) -> None:
    """Weighted gradients ω_t g_t stay when losses, and so gradients, are multiplied; `equal` then is log_loss."""
    balancer = build("balancers", "log_losses", {"of": name})
    losses, gramian = problem(7)
    scale = torch.tensor([1.0, 8.0, 0.9, 300.0], dtype=torch.float64)
    plain, _ = balancer(losses, gramian, balancer.init(TASKS))
    scaled, _ = balancer(losses * scale, scale[:, None] * gramian * scale, balancer.init(TASKS))
    np.testing.assert_allclose((scaled * scale).numpy(), plain.numpy(), rtol=1e-6)
    if name == "equal":
        known, _ = build("balancers", "log_loss")(losses, None, {})
        np.testing.assert_allclose(plain.numpy(), known.numpy(), rtol=1e-12)


def test_log_losses_give_the_wrapped_balancer_logarithms_and_their_gradients() -> None:
    losses, gramian = problem(5)
    balancer = build("balancers", "log_losses", {"of": {"cagrad": {"c": 0.2}}})
    cagrad = build("balancers", "cagrad", {"c": 0.2})
    expected, _ = cagrad(losses.log(), gramian / losses[:, None] / losses, cagrad.init(TASKS))
    weights, _ = balancer(losses, gramian, balancer.init(TASKS))
    np.testing.assert_allclose(weights.numpy(), (expected / losses).numpy(), rtol=1e-12)


@pytest.mark.parametrize(
    "options",
    [{"of": "mgda"}, {"of": {"log_losses": {"of": {"cagrad": {"c": 0.3}}}}, "alpha": 0.5}, {"of": {"dwa": {}}}],
    ids=["name", "nested", "mapping"],
)
def test_a_wrapper_is_written_into_a_run_and_read_back(options: dict[str, object]) -> None:
    balancer = build("balancers", "smooth", options)
    written = settings(balancer)
    assert written["of"]["results_version"] >= 1, "a wrapped balancer whose results change makes other runs"
    again = build("balancers", "smooth", {key: value for key, value in written.items() if key not in IDENTITY})
    assert settings(again) == written == settings(copy.deepcopy(balancer))


def test_a_wrapper_asks_for_what_the_wrapped_balancer_asks_for() -> None:
    smooth = build("balancers", "smooth", {"of": "famo"})
    famo = build("balancers", "famo")
    losses, _ = problem(2)
    assert (smooth.needs, smooth.needs_post_step_losses) == ("losses", True) == (famo.needs, True)
    _, state = famo(losses, None, famo.init(TASKS))
    _, smooth_state = smooth(losses, None, smooth.init(TASKS))
    seen, smooth_seen = famo.after_step(losses / 2, state), smooth.after_step(losses / 2, smooth_state)
    assert all(torch.equal(smooth_seen[key], value) for key, value in seen.items())
    assert set(smooth_seen) - set(seen) == {"smooth.weights", "smooth.level", "smooth.seen", "smooth.total"}


def test_wrapped_in_each_other_over_leading_dimensions() -> None:
    balancer = build("balancers", "smooth", {"of": {"log_losses": {"of": "imtl_g"}}})
    assert balancer.batchable and balancer.needs == "gramian"
    problems = [problem(seed) for seed in range(3)]
    together, _ = balancer(
        torch.stack([losses for losses, _ in problems]),
        torch.stack([gramian for _, gramian in problems]),
        balancer.init(TASKS, batch=(3,)),
    )
    for row, (losses, gramian) in zip(together, problems, strict=True):
        np.testing.assert_allclose(row.numpy(), balancer(losses, gramian, balancer.init(TASKS))[0].numpy(), rtol=1e-12)


@pytest.mark.parametrize(
    ("wrapper", "of", "text"),
    [
        ("smooth", "graddrop", "has a direction"),
        ("smooth", "auto_lambda", "has a look-ahead"),
        ("smooth", "conflict_noticed", "has weights by module"),
        ("smooth", "svd_reweighting", "has weights made before training"),
        ("smooth", "noise_oracle", "has weights made before training"),
        ("smooth", "smooth", "stands in itself"),
        ("smooth", "mgdaa", "unknown balancer 'mgdaa'"),
        ("smooth", 3, "should be a name"),
        ("smooth", {"mgda": 3}, "should be a balancer's name"),
        ("smooth", {"mgda": {"nothing": 3}}, "unknown option 'nothing'"),
        ("log_losses", "gls", "is made for positive losses"),
    ],
)
def test_what_cannot_be_wrapped_is_said_in_one_line(wrapper: str, of: object, text: str) -> None:
    with pytest.raises(UserError, match=text) as caught:
        build("balancers", wrapper, {"of": of})
    assert "\n" not in str(caught.value)


def test_a_file_names_wrappers_in_short_or_long_and_rows_are_called_by_what_is_in_them(tmp_path: Path) -> None:
    file = tmp_path / "wrapped.yaml"
    file.write_text(
        "description: d\ndatasets: [digits]\nmodel: {encoder: {name: mlp, hidden: [4]}}\nmethods:\n"
        "  - {label: slow, balancer: {smooth: {alpha: 0.5, of: mgda}}}\n"
        "  - {balancer: {name: smooth, of: {cagrad: {c: 0.3}}}}\n"
        "  - {name: log_losses, of: equal}\n"
        "  - {balancer: {log_losses: {of: {smooth: {of: imtl_g}}}}}\n"
        "  - {balancer: {mgda: {normalize: l2}}}\n"
    )
    methods = load_experiment(file).methods
    labels = ["slow", "smooth(cagrad)", "log_losses(equal)", "log_losses(smooth(imtl_g))", "mgda"]
    assert [method.label for method in methods[:5]] == labels
    assert methods[0].balancer.options == {"alpha": 0.5, "of": "mgda"}
    assert methods[4].balancer.options == {"normalize": "l2"}
