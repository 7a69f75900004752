"""The study of information transfer: what is drawn, and that sources help or hurt in the published order."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from mtlscale.config import SPLITS, UserError
from mtlscale.config.registry import components
from mtlscale.data.readers.prepared import PreparedData, load_prepared
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.solvers import covariance_similarity
from pipelines import PrepareContext
from pipelines.generated.transfer import Transfer

Arrays = tuple[np.ndarray, np.ndarray]
KINDS = ("same", "disjoint", "rotated")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def load(home: Path, **options: Any) -> PreparedData:
    return load_prepared(prepare("transfer", {"held_out": 20, "samples": 40, **options}, None, home))


def drawn(**options: Any) -> dict[tuple[str, str], Arrays]:
    """(task, split) -> inputs [N, d] and labels [N], as prepared."""
    tables = Transfer(**options).prepare(None, PrepareContext()).tables
    return {
        (task, split): (
            np.stack(table["input"].to_numpy()).astype(float),
            table[f"target.{task}"].to_numpy().astype(float),
        )
        for split, of in tables.items()
        for task, table in of.items()
    }


def test_tasks_have_the_sizes_that_are_asked_for(home: Path) -> None:
    data = load(home, source_samples=70, sources=2)
    counts = {"target": 40, "source1": 70, "source2": 70}
    assert data.manifest.counts == {task: {"train": n, "val": 20, "test": 20} for task, n in counts.items()}
    assert data.suite.inputs == "per_task" and {task.loss for task in data.suite.tasks} == {"mse"}


def test_what_a_source_is_leaves_the_target_alone() -> None:
    given = {"samples": 40, "held_out": 5}
    one = drawn(source_samples=9, **given)
    for other in ({"source_samples": 30}, {"covariance": "rotated"}, {"cosine": -0.5}, {"sources": 3}):
        again = drawn(**{"source_samples": 9, **given, **other})
        for split in SPLITS:
            for before, after in zip(one["target", split], again["target", split], strict=True):
                np.testing.assert_array_equal(before, after)


def test_a_seed_and_a_split_say_which_draw(home: Path) -> None:
    first = load(home, source_samples=9).manifest.fingerprint
    assert load(home / "again", source_samples=9).manifest.fingerprint == first
    others = {load(home, source_samples=9, **other).manifest.fingerprint for other in ({"seed": 1}, {"split": 1})}
    assert len({first, *others}) == 3


@pytest.mark.parametrize("cosine", [0.96, -0.3, 1.0, -1.0])
def test_labels_are_linear_with_weights_at_the_cosine(cosine: float) -> None:
    data = drawn(samples=400, source_samples=400, noise=0.0, cosine=cosine, held_out=2, condition=5.0)
    target, source = (np.linalg.lstsq(*data[task, "train"], rcond=None)[0] for task in ("target", "source"))
    for theta in (target, source):
        assert np.linalg.norm(theta) == pytest.approx(1.0, abs=1e-4)
    assert target @ source == pytest.approx(cosine, abs=1e-4)


def test_relu_cuts_labels_off_before_the_noise() -> None:
    given = {"samples": 50, "source_samples": 5, "held_out": 2}
    linear, noisy = drawn(noise=0.0, **given)["target", "train"][1], drawn(link="relu", **given)["target", "train"][1]
    np.testing.assert_allclose(drawn(link="relu", noise=0.0, **given)["target", "train"][1], np.maximum(linear, 0))
    assert (noisy < -0.5).any() and np.std(noisy - np.maximum(linear, 0)) == pytest.approx(1.0, rel=0.3)


@pytest.mark.parametrize("kind", KINDS)
def test_the_sources_inputs_vary_as_they_should(kind: str) -> None:
    data = drawn(samples=9000, source_samples=9000, held_out=2, covariance=kind)
    inputs = {task: data[task, "train"][0] for task in ("target", "source")}
    values, vectors = {}, {}
    for task, x in inputs.items():
        assert np.square(x).mean() == pytest.approx(1.0, rel=0.05)
        values[task], vectors[task] = np.linalg.eigh(x.T @ x / len(x))
        assert values[task][89] * 50**2 < values[task][90]  # ten directions vary a hundred times as much
    overlap = np.linalg.norm(vectors["target"][:, 90:].T @ vectors["source"][:, 90:]) ** 2 / 10
    assert overlap == pytest.approx({"same": 1.0, "disjoint": 0.0, "rotated": 0.1}[kind], abs=0.05)


def test_similarity_is_highest_for_the_same_covariance_and_known_for_few_samples() -> None:
    found = {}
    for kind in KINDS:
        data = drawn(samples=40, source_samples=30, held_out=2, covariance=kind)
        inputs = [torch.from_numpy(data[task, "train"][0]) for task in ("target", "source")]
        found[kind] = float(covariance_similarity(*inputs))
    assert found["same"] > 2 * found["rotated"] > 2 * found["disjoint"] >= 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cosine": 1.01}, "cosine"),
        ({"cosine": -2.0}, "cosine"),
        ({"rank": 101}, "rank = 101 is above the 100 features there are"),
        ({"rank": 51, "covariance": "disjoint"}, "two disjoint subspaces of rank 51 do not fit into 100 features"),
        ({"covariance": "other"}, "covariance"),
        ({"condition": 0.5}, "condition"),
        ({"source_samples": 0}, "source_samples"),
    ],
)
def test_bad_options_are_refused_in_a_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        components.build("datasets", "transfer", options, "dataset transfer")
    assert "\n" not in str(error.value)


@pytest.mark.slow  # what is claimed of the experiment, not of the code
class TestOrder:
    """Gain of hard sharing over single tasks, both as `experiments/transfer_synthetic.yaml` trains them (few units,
    mean losses, Adam), but all draws at once."""

    DRAWS, STEPS, RATE, BATCH = 10, 1000, 0.01, 64
    TARGET: ClassVar[dict[str, dict[str, Any]]] = {"linear": {"samples": 40}, "relu": {"samples": 100, "noise": 0.5}}
    WIDTH: ClassVar[dict[str, int]] = {"linear": 1, "relu": 2}

    def gains(self, link: str, *sources: tuple[str, int]) -> list[float]:
        """For each covariance and size of the source, in test RMSE on the target, mean over draws."""
        found = [self.arrays(link, *source) for source in sources]
        alone = self.error(found[0], link, 1)
        return [float((alone - self.error(parts, link, 2)).mean()) for parts in found]

    def arrays(self, link: str, kind: str, size: int) -> list[list[torch.Tensor]]:
        """Inputs [draws, N, d] and labels [draws, N] of target, source, and the target's test part."""
        given = {**self.TARGET[link], "source_samples": size, "covariance": kind, "link": link}
        draws = [drawn(**given, split=draw) for draw in range(self.DRAWS)]
        return [
            [torch.from_numpy(np.stack([draw[key][place] for draw in draws])).float() for place in (0, 1)]
            for key in (("target", "train"), ("source", "train"), ("target", "test"))
        ]

    def error(self, parts: list[list[torch.Tensor]], link: str, tasks: int) -> torch.Tensor:
        """[draws]: RMSE on the target, after training on the first so many tasks."""
        random = torch.Generator().manual_seed(0)
        width = self.WIDTH[link]
        shapes = ((100, width), (1, width), (width, 2), (1, 2))  # layer, its bias, heads, theirs
        weights = [
            (0.1 if shape[0] == 100 else 0.7) * (2 * torch.rand(self.DRAWS, *shape, generator=random) - 1)
            for shape in shapes
        ]
        weights = [weight.requires_grad_() for weight in weights]

        def residual(task: int, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            hidden = inputs @ weights[0] + weights[1]
            hidden = hidden.relu() if link == "relu" else hidden
            return (hidden @ weights[2] + weights[3])[..., task] - labels

        optimizer = torch.optim.Adam(weights, lr=self.RATE)
        for _ in range(self.STEPS):
            losses = []
            for task, (inputs, labels) in enumerate(parts[:tasks]):
                rows = torch.randperm(labels.shape[1], generator=random)[: self.BATCH]
                losses.append(residual(task, inputs[:, rows], labels[:, rows]).square().mean(1))
            optimizer.zero_grad()
            (sum(losses) / tasks).sum().backward()
            optimizer.step()
        with torch.no_grad():
            return residual(0, *parts[2]).square().mean(1).sqrt()

    def test_the_same_covariance_helps_soonest_and_other_directions_hurt_until_the_source_is_large(self) -> None:
        sources = (("same", 100), ("same", 1000), ("disjoint", 30), ("disjoint", 1000))
        same_soon, same_late, other_soon, other_late = self.gains("linear", *sources)
        assert other_soon < 0.0 < other_late, (other_soon, other_late)
        assert min(same_soon, same_late) > other_late + 0.1, (same_soon, same_late, other_late)

    def test_so_it_is_behind_a_relu(self) -> None:
        same, other = self.gains("relu", ("same", 300), ("disjoint", 300))
        assert same > max(0.0, other), (same, other)
