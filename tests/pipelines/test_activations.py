from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mtlscale.config import SPLITS, UserError
from mtlscale.data.format.prepared import PreparedData, load_prepared
from mtlscale.execution.preparing.prepare import prepare

ALIKE = {"activations": ["sinc", "sinc", "sinc"], "scales": [1, 2, 3]}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def load(home: Path, **options: Any) -> PreparedData:
    return load_prepared(prepare("activations", options, None, home))


def arrays(data: PreparedData, task: str, splits: tuple[str, ...] = SPLITS) -> tuple[np.ndarray, np.ndarray]:
    """(inputs [N, 200], targets [N]), in the order of the ids."""
    samples = [data.splits[split][task] for split in splits]
    inputs = np.concatenate([s.inputs.numpy() for s in samples]).astype(float)
    return inputs, np.concatenate([s.targets[task].numpy() for s in samples]).astype(float).ravel()


def test_a_hundred_samples_in_every_split_with_the_printed_variances(home: Path) -> None:
    data = load(home)
    assert [task.name for task in data.suite.tasks] == ["sinc", "bent", "square"]
    assert {task.loss for task in data.suite.tasks} == {"mse"} and data.suite.inputs == "per_task"
    assert data.manifest.counts == {name: dict.fromkeys(SPLITS, 100) for name in ("sinc", "bent", "square")}
    inputs = {task.name: arrays(data, task.name)[0] for task in data.suite.tasks}
    assert np.var(inputs["sinc"]) == pytest.approx(12.0, rel=0.03)


def test_tasks_share_the_input_but_for_a_move_of_their_own(home: Path) -> None:
    from mtlscale.data.format.prepared import read_ids

    data = load(home)
    found = {}
    for task in ("sinc", "square"):
        order = np.argsort([id.partition("/")[2] for s in SPLITS for id in read_ids(data.folder, s, task)])
        found[task] = arrays(data, task)[0][order]
    assert np.var(found["sinc"] - found["square"]) == pytest.approx(2 * 2.0, rel=0.03)  # δ of either


def test_targets_are_the_activations_of_one_product(home: Path) -> None:
    """600 samples determine Z (200) by the bent identity, whose inverse is known; the others follow from it."""
    data = load(home, samples=200)
    inputs, y = arrays(data, "bent")
    z = (2 * (2 * y + 1) - np.sqrt((2 * y + 1) ** 2 + 3)) / 3  # of y = (√(z² + 1) - 1) / 2 + z
    weights, *_ = np.linalg.lstsq(inputs, z, rcond=None)
    np.testing.assert_allclose(inputs @ weights, z, atol=1e-5)
    for task, activation in (("sinc", lambda z: np.sin(z) / z), ("square", np.square)):
        inputs, y = arrays(data, task)
        np.testing.assert_allclose(y, activation(inputs @ weights), atol=1e-5)
    assert np.std(weights * 200) == pytest.approx(1.0, rel=0.15)
    assert np.std(z) == pytest.approx(np.sqrt(12 * 200) / 200, rel=0.2)  # as printed: about a quarter


def test_scales_multiply_an_activation_that_tasks_share(home: Path) -> None:
    data = load(home, **ALIKE)
    assert [task.name for task in data.suite.tasks] == ["sinc1", "sinc2", "sinc3"]
    for place, task in enumerate(data.suite.tasks, start=1):
        _, y = arrays(data, task.name)
        assert y.max() == pytest.approx(place, abs=0.01) and y.min() > 0.8 * place


def test_the_divisor_spreads_the_product(home: Path) -> None:
    near, far = (arrays(load(home, divisor=d), "square")[1] for d in (200.0, 20.0))
    np.testing.assert_allclose(far, 100 * near, rtol=1e-4)


def test_the_seed_makes_other_data(home: Path) -> None:
    one, again, other = load(home), load(home / "again"), load(home, seed=1)
    assert one.manifest.fingerprint == again.manifest.fingerprint != other.manifest.fingerprint


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"activations": []}, "activations is empty; name one for each task, of sinc, bent, square"),
        ({"activations": ["sink"]}, "unknown activation 'sink': did you mean sinc"),
        ({"scales": [1, 2]}, "2 scales for 3 activations; name one for each, or none"),
        ({"scales": [1, 0, 1]}, "a scale of 0 leaves nothing to learn"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str, home: Path) -> None:
    with pytest.raises(UserError, match=f"activations: {message}"):
        load(home, **options)
