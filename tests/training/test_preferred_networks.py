"""Networks that are given a preference: what a step draws, what the record keeps, and what the network makes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from frozen.cases import SGD, SHARED, Case
from frozen.compute import in_memory, run_of

from mtlscale.config import UserError
from mtlscale.config.preferences import central, rays
from mtlscale.config.registry.components import build
from mtlscale.execution.planning.plan import check_preferences
from mtlscale.training import Trainer, build_model, finish

CASES = {
    "conditioned_hps": Case("uneven", {"name": "conditioned_hps", "grid": 3}, SGD, SHARED),
    "palora": Case("uneven", {"name": "palora", "grid": 6, "rank": 2}, SGD, SHARED),
}


@pytest.mark.parametrize("name", CASES)
def test_a_record_has_the_front_and_the_metrics_of_the_central_preference(name: str) -> None:
    case = CASES[name]
    trainer = Trainer(run_of(case), in_memory(case))
    record = finish(trainer)
    assert [tuple(point.preference) for point in record.front] == rays(name, 3, case.method["grid"])
    assert len({str(point.metrics) for point in record.front}) == len(record.front), "a preference changes predictions"
    middle = record.front[central(rays(name, 3, case.method["grid"]))]
    assert middle.metrics == {split: record.metrics[split] for split in ("val", "test")}
    assert trainer.chosen_state["preference"].tolist() == pytest.approx(middle.preference)


@pytest.mark.parametrize("name", CASES)
def test_a_step_draws_one_preference_for_network_and_balancer(name: str) -> None:
    case = CASES[name]
    trainer = Trainer(run_of(case), in_memory(case))
    drawn = []
    session, step = trainer.session, trainer.session.step

    def noted(*arguments: object, **named: object) -> object:
        result = step(*arguments, **named)
        drawn.append(session.model.preference.clone())
        assert torch.equal(session.main.update.state["preference"], drawn[-1].double())
        return result

    session.step = noted
    next(trainer.train())
    stacked = torch.stack(drawn)
    torch.testing.assert_close(stacked.sum(1), torch.ones(len(drawn), dtype=stacked.dtype))
    assert len({tuple(row) for row in stacked.tolist()}) == len(drawn)
    expected = np.random.default_rng((session.main.sampler.seed, 0)).dirichlet([1.2] * 3)
    assert stacked[0].tolist() == pytest.approx(expected.tolist())


def test_adapters_are_weighted_by_the_preference_and_begin_as_the_plain_network() -> None:
    case = CASES["palora"]
    data, run = in_memory(case), run_of(case)
    network, _ = build_model(run, data.suite)
    plain, _ = build_model(run_of(replace(case, method={"name": "hps"})), data.suite)
    names = [name for name, _ in network.named_parameters()]
    assert sum("parametrizations.weight.0" in name for name in names) == 2
    layer = next(m for m in network.encoder.modules() if isinstance(m, torch.nn.Linear))
    twin = next(m for m in plain.encoder.modules() if isinstance(m, torch.nn.Linear))
    assert torch.equal(layer.weight, twin.weight)

    adapters = layer.parametrizations.weight[0]
    torch.nn.init.normal_(adapters.up)
    network.set_preference(torch.tensor([0.2, 0.0, 0.8]))
    expected = twin.weight + 4.0 / 2 * (
        0.2 * adapters.up[0] @ adapters.down[0] + 0.8 * adapters.up[2] @ adapters.down[2]
    )
    torch.testing.assert_close(layer.weight, expected, rtol=1e-5, atol=1e-6)


def test_an_interruption_changes_nothing(tmp_path: Path) -> None:
    case = replace(CASES["palora"], training={**SGD, "checkpoint_seconds": 0})
    whole = finish(Trainer(run_of(case), in_memory(case)))
    cut = Trainer(run_of(case), in_memory(case), folder=tmp_path)
    next(cut.train())
    resumed = finish(Trainer(run_of(case), in_memory(case), folder=tmp_path))
    assert [point.metrics for point in resumed.front] == [point.metrics for point in whole.front]


def test_a_balancer_without_a_preference_is_refused_before_anything_starts() -> None:
    run = run_of(Case("uneven", {"architecture": "palora", "balancer": "mgda"}, SGD))
    with pytest.raises(UserError, match="palora draws a preference every step, which mgda does not take"):
        check_preferences(run, tasks=3)
    check_preferences(run_of(Case("uneven", {"architecture": "palora", "balancer": "epo"}, SGD)), tasks=3)


def test_texts_get_no_further_columns() -> None:
    suite = replace(in_memory(CASES["palora"]).suite, input_kind="tokens", input_shape=(7,))
    with pytest.raises(UserError, match="conditioned_hps adds preferences to vectors and images"):
        build("architectures", "conditioned_hps").encoder_suite(suite)
