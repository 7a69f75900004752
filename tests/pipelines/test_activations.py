from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mtlscale.config import SPLITS, UserError
from mtlscale.data.readers.prepared import PreparedData, load_prepared
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
    from mtlscale.data.readers.prepared import read_ids

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


def test_shared_inputs_are_one_stream_whose_targets_alone_are_shifted(home: Path) -> None:
    own, shared = load(home), load(home, inputs="shared")
    assert shared.suite.inputs == "shared" and list(shared.splits["train"]) == ["all"]
    for split in SPLITS:
        samples = shared.splits[split]["all"]
        assert samples.inputs.shape == (100, 200)
        for task in ("sinc", "bent", "square"):  # the same targets, of the same shifted inputs
            expected = own.splits[split][task].targets[task].numpy().ravel()
            np.testing.assert_allclose(np.sort(samples.targets[task].numpy().ravel()), np.sort(expected), rtol=1e-6)


def test_deviations_in_place_of_variances_spread_the_inputs(home: Path) -> None:
    inputs = arrays(load(home, spread="deviation"), "sinc")[0]
    assert np.std(inputs) == pytest.approx(np.sqrt(10.0**2 + 2.0**2), rel=0.03)


@pytest.mark.parametrize(("standardise", "deviation"), [("inputs", None), ("all", 1.0)])
def test_what_is_standardised_is_so_over_training(standardise: str, deviation: float | None, home: Path) -> None:
    inputs, targets = arrays(load(home, inputs="own", standardise=standardise, **ALIKE), "sinc3", ("train",))
    np.testing.assert_allclose(inputs.mean(0), 0.0, atol=1e-5)
    np.testing.assert_allclose(inputs.std(0), 1.0, atol=1e-5)
    if deviation is not None:
        assert (targets.mean(), targets.std()) == (pytest.approx(0.0, abs=1e-5), pytest.approx(deviation, abs=1e-5))
    else:
        assert targets.max() > 2.0  # the factor 3 is there


def test_numpys_sinc_has_pi(home: Path) -> None:
    plain, with_pi = (arrays(load(home, activations=[name]), name)[1] for name in ("sinc", "sinc_pi"))
    assert with_pi.std() > 3 * plain.std()


def test_every_split_is_a_draw_of_its_own(home: Path) -> None:
    first, second = (arrays(load(home, split=split), "sinc")[0] for split in (0, 1))
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.05


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"activations": []}, "activations is empty; name one for each task, of sinc, sinc_pi, bent, square"),
        ({"activations": ["sink"]}, "unknown activation 'sink': did you mean sinc"),
        ({"scales": [1, 2]}, "2 scales for 3 activations; name one for each, or none"),
        ({"scales": [1, 0, 1]}, "a scale of 0 leaves nothing to learn"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str, home: Path) -> None:
    with pytest.raises(UserError, match=f"activations: {message}"):
        load(home, **options)
