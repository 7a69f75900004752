"""The linear floor: what scikit-learn's regressions predict, for words, numbers, pictures and maps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mtlscale.architectures.floors import _regressions
from mtlscale.architectures.floors._regressions import Examples, LinearFit, fit
from mtlscale.config import MISSING_CLASS, Experiment, Task
from mtlscale.data.readers.prepared import PreparedData, load_prepared
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.records import RunRecord
from mtlscale.training import train

RNG = np.random.default_rng(0)


def _of(loss: str, outputs: int, metric: str) -> Task:
    return Task(name="t", loss=loss, outputs=outputs, metrics=(metric,))


def _fit(task: Task, labels: np.ndarray, rows: np.ndarray) -> LinearFit:
    half = len(rows) // 2
    train_, val = (Examples(rows[part], labels[part]) for part in (slice(half), slice(half, None)))
    return fit({"t": task}, {"t": train_}, {"t": val}, (1e-3, 100.0))["t"]


def test_numbers_and_classes_that_are_linear_are_found() -> None:
    rows, weights = RNG.normal(size=(400, 5)), RNG.normal(size=(5, 3))
    numbers = rows @ weights + 2.0
    found = _fit(_of("mse", 3, "rmse"), numbers, rows)
    assert np.abs(found(rows) - numbers).max() < 0.05  # the weak penalty was chosen
    classes = (rows @ weights).argmax(1)
    assert (_fit(_of("cross_entropy", 3, "error"), classes, rows)(rows).argmax(1) == classes).mean() > 0.97
    soft = np.eye(3)[classes] * 0.8 + 0.2 / 3
    assert (_fit(_of("soft_cross_entropy", 3, "soft_error"), soft, rows)(rows).argmax(1) == classes).mean() > 0.95
    both = (rows @ weights[:, :2] > 0).astype(float)
    assert ((_fit(_of("bce", 2, "error"), both, rows)(rows) > 0) == both).mean() > 0.97


def test_the_same_examples_are_fitted_once_and_others_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with floors of many seeds, whose fit takes minutes on wide inputs."""
    fitted = []
    best = _regressions._best_fits
    monkeypatch.setattr(_regressions, "_best_fits", lambda *given: fitted.append(0) or best(*given))
    rows, task = RNG.normal(size=(80, 3)), _of("bce", 1, "error")
    labels = (rows[:, :1] > 0).astype(float)
    first, again = _fit(task, labels, rows), _fit(task, labels.copy(), rows.copy())
    assert len(fitted) == 1 and np.array_equal(first.weights, again.weights)
    labels[0] = 1 - labels[0]
    _fit(task, labels, rows)
    _fit(_of("mse", 1, "rmse"), labels, rows)
    assert len(fitted) == 3


def test_missing_labels_count_for_nothing_and_a_class_nobody_has_is_never_predicted() -> None:
    rows = RNG.normal(size=(300, 4))
    labels = np.where(rows[:, 0] > 0, 2, 0)
    gaps = RNG.random(300) < 0.5
    wrong = np.where(gaps, MISSING_CLASS, labels)
    found = _fit(_of("cross_entropy", 4, "error"), wrong, rows)
    predicted = found(rows).argmax(1)
    assert set(predicted) == {0, 2} and (predicted == labels).mean() > 0.95
    numbers = np.where(gaps, np.nan, rows[:, 1])
    assert np.abs(_fit(_of("l1", 1, "mae"), numbers, rows)(rows)[:, 0] - rows[:, 1]).max() < 0.1
    one = _fit(_of("cross_entropy", 4, "error"), np.full(300, 3), rows)
    assert (one(rows).argmax(1) == 3).all()


def test_few_labels_are_better_learned_together_with_an_indicator_of_the_task() -> None:
    """Tasks that share their weights and differ by an offset: with six samples each, none can learn them alone."""
    weights, tasks = RNG.normal(size=8), {}
    train_, val = {}, {}
    for number in range(40):
        rows = RNG.normal(size=(40, 8))
        labels = ((rows @ weights + (2.0 if number % 2 else -2.0)) > 0).astype(int)
        tasks[f"t{number}"] = Task(name=f"t{number}", loss="cross_entropy", outputs=2, metrics=("error",))
        train_[f"t{number}"], val[f"t{number}"] = Examples(rows[:6], labels[:6]), Examples(rows[6:], labels[6:])
    found = fit(tasks, train_, val, (1.0, 10.0))
    assert np.array_equal(found["t0"].weights, found["t7"].weights)
    assert not np.allclose(found["t0"].offsets, found["t1"].offsets)
    right = [(found[name](val[name].rows).argmax(1) == val[name].labels).mean() for name in tasks]
    assert np.mean(right) > 0.9


@pytest.mark.parametrize("alike", [False, True])
def test_of_many_tasks_some_choose_and_all_are_fitted(alike: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that are alike are fitted together; each is fitted as it would be if all had chosen."""
    rows = RNG.normal(size=(60, 8))
    tasks, weights = {}, RNG.normal(size=(30, 8)) * (0.0 if alike else 1.0) + RNG.normal(size=8)
    labels = {}
    for number in range(30):
        name = f"t{number}"
        tasks[name] = Task(name=name, loss="bce", outputs=1, metrics=("error",))
        labels[name] = (rows @ weights[number] + RNG.normal(size=60) > 0).astype(float)[:, None]
    train_, val = ({name: Examples(rows[part], values[part]) for name, values in labels.items()}
                   for part in (slice(6 if alike else 40), slice(40, None)))  # fmt: skip
    of_all = fit(tasks, train_, val, (1.0,))
    monkeypatch.setattr(_regressions, "_MANY", 5)
    _regressions._last_fits.clear()
    of_some = fit(tasks, train_, val, (1.0,))
    assert alike == np.array_equal(of_some["t0"].weights, of_some["t7"].weights)
    for name, linear in of_all.items():
        assert np.array_equal(linear.weights, of_some[name].weights)
        assert np.array_equal(linear.offsets, of_some[name].offsets)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return load_prepared(prepare("digits", {}, None, tmp_path_factory.mktemp("home")))


def _run(data: PreparedData, reader: str) -> RunRecord:
    """A run on the first four digits."""
    tasks = [task.name for task in data.suite.tasks[:4]]
    content = {
        "name": "t",
        "datasets": [{"name": "digits", "tasks": tasks}],
        "methods": ["linear"],
        "floors": [],
        "training": {"epochs": 3, "reader": reader},
    }
    experiment = Experiment.model_validate(content)
    (run,) = experiment.runs({experiment.datasets[0].label: data.manifest.fingerprint})
    return train(run, data)


@pytest.fixture(scope="module")
def record(digits: PreparedData) -> RunRecord:
    return _run(digits, "memory")


def test_a_run_on_pictures_takes_one_epoch_and_is_what_scikit_learn_finds(
    digits: PreparedData, record: RunRecord
) -> None:
    from sklearn.linear_model import LogisticRegression

    assert (record.status, len(record.epochs), record.shared_parameters) == ("finished", 1, 0)
    errors = {}
    for strength in (0.01, 0.1, 1.0, 10.0):
        right: dict[str, list[float]] = {"val": [], "test": []}
        for task in record.main_metrics:
            samples = digits.splits["train"][task]
            rows = samples.inputs.flatten(1).double()
            centre, scale = rows.mean(0), rows.std(0, correction=0)
            scale = torch.where(scale > 1e-9, scale, 1.0)
            model = LogisticRegression(C=strength, max_iter=300)
            model.fit((rows - centre) / scale, samples.targets[task])
            for split, found in right.items():
                part = digits.splits[split][task]
                inputs = (part.inputs.flatten(1).double() - centre) / scale
                found.append(100 * model.score(inputs, part.targets[task]))
        errors[strength] = right
    # The run standardises over all tasks' samples; by task, as here, the same to a sample or two.
    wanted = np.array(max(errors.values(), key=lambda right: np.mean(right["val"]))["test"])
    ours = np.array([record.metrics["test"][task]["accuracy"] for task in record.main_metrics])
    assert abs(wanted.mean() - ours.mean()) < 1.5


def test_words() -> None:
    """Documents whose class is one of their words."""
    from mtlscale.architectures.floors.linear import LinearModule
    from mtlscale.config import TaskSuite
    from mtlscale.data import Batch, Samples

    suite = TaskSuite(
        name="s",
        tasks=(Task(name="t", loss="cross_entropy", outputs=2, metrics=("accuracy",)),),
        inputs="per_task",
        input_kind="tokens",
        input_shape=(12,),
        vocabulary_size=50,
    )
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(4, 50, (300, 12), generator=generator)
    labels = torch.randint(0, 2, (300,), generator=generator)
    tokens[:, 5] = 2 + labels
    tokens[:, 9:] = 0  # padding

    class Data:
        def targets(self) -> dict[str, torch.Tensor]:
            return {"t": labels[:200]}

        def samples(self, split: str, stream: str, most: int | None = None):  # type: ignore[no-untyped-def]
            part = slice(200) if split == "train" else slice(200, None)
            yield Samples(tokens[part], {"t": labels[part]})

    model = LinearModule(suite, False, (0.1, 10.0))
    model.from_data(Data())
    found = model(Batch("t", Samples(tokens, {"t": labels}), 300)).predictions["t"]
    assert found.shape == (300, 2) and (found.argmax(1) == labels).float().mean() > 0.99


def test_category_codes_are_one_hot_columns() -> None:
    """Classes that depend on which code it is, not on how large: no line through the codes tells them apart."""
    from sklearn.linear_model import LogisticRegression

    from mtlscale.architectures.floors.linear import LinearModule
    from mtlscale.config import TaskSuite
    from mtlscale.data import Batch, Samples

    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(1, 8, (600, 2), generator=generator)
    numbers = torch.randn(600, 2, generator=generator) * 5 + 100
    labels = ((codes[:, 0] % 2 + codes[:, 1] % 3 == 1) ^ (numbers[:, 0] > 107)).long()
    inputs = torch.stack([codes[:, 0], numbers[:, 0], codes[:, 1], numbers[:, 1]], dim=1).float()
    suite = TaskSuite(
        name="s",
        tasks=(Task(name="t", loss="cross_entropy", outputs=2, metrics=("accuracy",)),),
        inputs="per_task",
        input_kind="vector",
        input_shape=(4,),
        categories=(8, 0, 8, 0),
    )

    class Data:
        def targets(self) -> dict[str, torch.Tensor]:
            return {"t": labels[:400]}

        def samples(self, split: str, stream: str, most: int | None = None):  # type: ignore[no-untyped-def]
            part = slice(400) if split == "train" else slice(400, None)
            yield Samples(inputs[part], {"t": labels[part]})

    model = LinearModule(suite, False, (1.0,))
    model.from_data(Data())
    found = model(Batch("t", Samples(inputs, {"t": labels}), 600)).predictions["t"].detach().numpy()

    scaled = (numbers - numbers[:400].mean(0)) / numbers[:400].std(0, correction=0)
    one_hot = torch.nn.functional.one_hot(codes, 8).flatten(1)
    rows = torch.cat([one_hot, scaled], dim=1).double().numpy()
    wanted = LogisticRegression(C=1.0, max_iter=300).fit(rows[:400], labels[:400]).decision_function(rows)
    np.testing.assert_allclose(found[:, 1] - found[:, 0], wanted, atol=0.02)


def test_columns_are_taken_of_compressed_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of coordinates, scipy takes columns in a table of all of them: gigabytes where there are many categories."""
    from scipy import sparse

    from mtlscale.architectures.floors.linear import _shifted

    def refused(*_: object) -> None:
        raise AssertionError("columns of a matrix in coordinates")

    dense = np.random.default_rng(0).normal(size=(30, 6)) * (np.arange(6) % 3 != 1)
    matrix = sparse.csr_array(dense) * np.linspace(1.0, 2.0, 6)
    assert matrix.format == "coo"
    monkeypatch.setattr(sparse.coo_array, "__getitem__", refused)
    columns, offsets = np.array([1, 0, 0, 1, 0, 1], bool), np.arange(6.0)
    shifted = _shifted(matrix, offsets, columns).toarray()
    np.testing.assert_allclose(shifted, dense * np.linspace(1.0, 2.0, 6) - np.where(columns, offsets, 0.0))


def test_maps_place_by_place() -> None:
    """Depth that is a linear function of colour and place."""
    from mtlscale.architectures.floors.linear import LinearModule
    from mtlscale.config import TaskSuite
    from mtlscale.data import Batch, Samples

    task = Task(name="d", loss="l1", outputs=1, metrics=("abs_err",))
    normals = Task(name="n", loss="cosine", outputs=3, metrics=("angle_mean",))
    suite = TaskSuite(name="s", tasks=(task, normals), inputs="shared", input_kind="image", input_shape=(3, 20, 24))
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(30, 3, 20, 24, generator=generator)
    down = torch.linspace(0, 1, 20)[:, None].expand(20, 24)
    depth = (images[:, 0] * 2 - images[:, 2] + 3 * down).unsqueeze(1)
    normal = torch.stack([down, 1 - down, torch.ones_like(down)]).expand(30, -1, -1, -1)
    samples = Samples(images, {"d": depth, "n": normal})

    class Data:
        def targets(self) -> dict[str, torch.Tensor]:
            return samples.targets

        def samples(self, split: str, stream: str, most: int | None = None):  # type: ignore[no-untyped-def]
            yield samples

    model = LinearModule(suite, True, (10.0,))
    model.from_data(Data())
    found = model(Batch("all", samples, 30)).predictions
    assert (found["d"] - depth).abs().max() < 0.05
    cosine = torch.nn.functional.cosine_similarity(found["n"], normal, dim=1)
    assert cosine.min() > 0.99


def test_the_reader_does_not_matter(digits: PreparedData, record: RunRecord) -> None:
    assert _run(digits, "mapped").metrics == record.metrics
