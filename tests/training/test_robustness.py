"""A trained classifier attacked, shown what is none of its classes, counted and timed."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import nn
from torch.nn import functional
from two_workers import two_workers

from mtlscale.config import Experiment, Run, TaskSuite, UserError, load_plugin
from mtlscale.data import Workers
from mtlscale.data.readers.prepared import PreparedData, load_prepared
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.metrics.detection import confidence, detection
from mtlscale.records import RunRecord
from mtlscale.report import Leaderboard
from mtlscale.training import Trainer, finish, train
from mtlscale.training.evaluation.attack import Pixels, pgd

PLUGIN = Path(__file__).parents[1] / "plugins" / "kinds.py"
SUITE = TaskSuite(name="x", tasks=(), inputs="shared", input_kind="image", input_shape=(3, 6, 6),
                  extras={"mean": [90.0, 80.0, 70.0], "std": [50.0, 40.0, 60.0]})  # fmt: skip
EVERYTHING = "{pgd: 2, ood: true, flops: true, latency: true}"
NETWORK = "{encoder: {name: resnet18, width: 4, stem: small}}"


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    load_plugin(PLUGIN)
    return load_prepared(prepare("kinds", {}, None, tmp_path_factory.mktemp("home")))


@pytest.fixture
def run(small: Callable[..., Experiment], run_of: Callable[..., Run], kinds: PreparedData) -> Callable[..., Run]:
    def make(evaluation: str = EVERYTHING, method: str = "equal", model: str = NETWORK, training: str = "") -> Run:
        experiment = small(
            plugins=f"[{PLUGIN}]",
            datasets=f"[{{name: kinds, evaluation: {evaluation}}}]",
            methods=f"[{method}]",
            model=model,
            training=f"{{epochs: 2, batch_size: 8, lr: 1e-2, dtype: float64{training}}}",
        )
        return run_of(experiment, kinds)

    return make


def images(count: int = 40) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, 3, 6, 6), generator=generator).to(torch.uint8)


def network() -> tuple[nn.Module, Callable[[torch.Tensor], torch.Tensor]]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(80, 4)).double()
    labels = torch.arange(40) % 4
    return model, lambda x: functional.cross_entropy(model(x), labels, reduction="none")


def test_the_attack_stays_in_its_ball_and_in_the_range_and_raises_the_loss() -> None:
    _, losses = network()
    pixels, given = Pixels.of(SUITE, torch.float64, torch.device("cpu")), images()
    clean = pixels(given)
    before = losses(clean)
    for epsilon in (0.0, 0.5, 4.0):
        found = pgd(lambda x: losses(x).sum(), clean, pixels, epsilon, 10, 2.5 * epsilon / 10)
        moved = (found - clean) * pixels.std  # in bytes
        assert moved.abs().max() <= epsilon + 1e-9 and (epsilon == 0) == torch.equal(found, clean)
        back = found * pixels.std + pixels.mean
        assert back.min() >= -1e-9 and back.max() <= 255 + 1e-9
        after = losses(found)
        assert (after >= before - 1e-9).float().mean() >= 0.95 and (after.mean() > before.mean()) == (epsilon > 0)
        before = after if epsilon else before
    # One step is the fast gradient sign method.
    at = clean.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(losses(at).sum(), at)
    one = pgd(lambda x: losses(x).sum(), clean, pixels, 3.0, 1, 2.0)
    low, high = pixels.range
    assert torch.allclose(one, (clean + 2.0 / pixels.std * gradient.sign()).clamp(low, high))


def test_what_does_not_depend_on_the_images_is_left_alone() -> None:
    pixels = Pixels.raw(SUITE, torch.float64, torch.device("cpu"))
    clean = pixels(images()).double()
    assert torch.equal(pgd(lambda x: torch.zeros(()), clean, pixels, 2.0, 3, 1.0), clean)


def test_detection_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(0.5, 1, 300), rng.normal(0, 1, 200)
    outside[:50] = inside[:50]  # ties
    found = detection(torch.tensor(inside), torch.tensor(outside))
    truth, scores = np.r_[np.zeros(300), np.ones(200)], np.r_[inside, outside]
    assert found["ood_auroc"] == pytest.approx(100 * roc_auc_score(truth, -scores), abs=1e-9)
    assert found["ood_aupr"] == pytest.approx(100 * average_precision_score(truth, -scores), abs=1e-9)
    assert found["ood_aupr_inverted"] == pytest.approx(100 * average_precision_score(truth, scores), abs=1e-9)


def test_a_perfect_detector_has_the_floor_of_the_inverted_reading() -> None:
    found = detection(torch.linspace(2, 3, 20_000).double(), torch.linspace(0, 1, 20_000).double())
    assert found["ood_aupr"] == found["ood_auroc"] == 100.0
    assert found["ood_aupr_inverted"] == pytest.approx(100 * (1 - math.log(2)), abs=0.01)
    sure = torch.tensor([[60.0, 0.0], [80.0, 0.0]])
    assert confidence(sure)[0] < confidence(sure)[1] or confidence(sure * 0.5)[0] < confidence(sure * 0.5)[1]


def test_a_run_is_evaluated(run: Callable[..., Run], kinds: PreparedData) -> None:
    record = train(run(), kinds)
    assert set(record.figures) == {"val", "test", "network"}
    assert set(record.figures["test"]) == {"pgd_accuracy", "ood_auroc", "ood_aupr", "ood_aupr_inverted"}
    assert record.figures["test"]["pgd_accuracy"] <= record.metrics["test"]["class"]["accuracy"]
    assert record.figures["network"]["throughput"] > 0 and record.figures["network"]["latency_ms"] > 0
    assert RunRecord.model_validate_json(record.model_dump_json()) == record.model_copy(update={"epochs": []})
    plain = train(run("{pgd: {epsilon: 0}}"), kinds)
    for split in ("val", "test"):
        accuracy = plain.metrics[split]["class"]["accuracy"]
        assert plain.figures[split] == {"pgd_accuracy": pytest.approx(accuracy, rel=1e-12)}
    assert plain.metrics == record.metrics and plain.run_id != record.run_id
    # As columns of the leaderboard, with unit and direction.
    other = record.model_copy(update={"method": "stl", "figures": {**record.figures, "network": {"flops": 9.0}}})
    (table,) = Leaderboard.from_records([record, other]).tables.values()
    assert table.rows.loc["equal", "pgd_accuracy"] == record.figures["test"]["pgd_accuracy"]
    assert table.higher("pgd_accuracy") and not table.higher("flops")
    text = Leaderboard.from_records([record, other]).to_markdown()
    assert all(header in text for header in ("PGD acc", "OoD AUPR", "AUPR inv.", "FLOPs M", "latency ms"))


def test_floors_are_evaluated_too(run: Callable[..., Run], kinds: PreparedData) -> None:
    constant, linear = (train(run("{pgd: 80, flops: true}", method), kinds) for method in ("constant", "linear"))
    assert constant.figures["test"]["pgd_accuracy"] == pytest.approx(constant.metrics["test"]["class"]["accuracy"])
    assert linear.figures["test"]["pgd_accuracy"] < linear.metrics["test"]["class"]["accuracy"]


def test_multiply_adds_are_those_counted_by_hand(run: Callable[..., Run], kinds: PreparedData) -> None:
    size = kinds.suite.input_shape[1]
    model = "{encoder: {name: mlp, hidden: [7, 5]}}"
    record = train(run("{flops: true}", model=model), kinds)
    assert record.figures["network"]["flops"] * 1e6 == pytest.approx(3 * size**2 * 7 + 7 * 5 + 5 * 3)
    record = train(run("{flops: true}"), kinds)
    maps, total = size, size**2 * 9 * 3 * 4  # the stem
    for layer in range(4):
        inputs, outputs = (4 << max(0, layer - 1)), 4 << layer
        maps = maps if layer == 0 else -(-maps // 2)
        shortcut = 0 if layer == 0 else inputs * outputs
        total += maps**2 * (9 * inputs * outputs + 3 * 9 * outputs**2 + shortcut)
    assert record.figures["network"]["flops"] * 1e6 == pytest.approx(total + 32 * 3)


def _figures(job: tuple[Run, PreparedData], workers: Workers) -> dict[str, dict[str, float]]:
    load_plugin(PLUGIN)
    return finish(Trainer(*job, workers=workers)).figures


@pytest.mark.slow
def test_two_workers_measure_what_one_does(run: Callable[..., Run], kinds: PreparedData) -> None:
    job = run("{pgd: {epsilon: 6, steps: 3}, ood: true, flops: true}"), kinds
    ((one,), both) = (_figures(job, Workers()),), two_workers(_figures, [job])[0]
    for found in both:
        assert found.keys() == one.keys()
        for where, values in found.items():
            assert values == pytest.approx(one[where], rel=1e-9)


@pytest.mark.parametrize(
    ("dataset", "evaluation", "message"),
    [
        ("uneven", "{pgd: 2}", "evaluation: uneven is not one task of classes; drop `pgd` and `ood`"),
        ("uneven", "{pgd: {epsilon: -1}}", "epsilon"),
    ],
)
def test_what_cannot_be_evaluated(
    small: Callable[..., Experiment], uneven: Callable[..., PreparedData], run_of: Callable[..., Run],
    dataset: str, evaluation: str, message: str,
) -> None:  # fmt: skip
    with pytest.raises(UserError, match=message):
        experiment = small(datasets=f"[{{name: {dataset}, evaluation: {evaluation}}}]")
        Trainer(run_of(experiment, uneven()), uneven())
