"""Raw inputs become what the pipeline of the data made of them, and those that cannot are named."""

from __future__ import annotations

import csv
import json
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from command import mtlscale, refused
from exported_runs import Finished, finish
from image_sets import encoded

from mtlscale.config import UserError
from mtlscale.inference import ExportedModel, export, load_model
from mtlscale.inference.pyfunc import _load_pyfunc

PLUGINS = Path(__file__).parents[1] / "plugins"
FEATURES = [f"f{place}" for place in range(6)]
Finish = Callable[..., Finished]
REVIEWS = [("good fun, really good!", "1"), ("bad and dull; bad.", "0"), ("a good one", "1"), ("so dull", "0")]


def exported(run: Finished, folder: Path) -> ExportedModel:
    return load_model(export(run.home, run.run_id, folder))


@pytest.fixture
def vectors(finished: Finish, tmp_path: Path) -> tuple[Finished, ExportedModel]:
    run = finished()
    return run, exported(run, tmp_path / "model")


@pytest.fixture
def pictures(finished: Finish, tmp_path: Path) -> Callable[[bool], tuple[Finished, ExportedModel]]:
    def make(maps: bool) -> tuple[Finished, ExportedModel]:
        run = finished(
            plugins=f"[{PLUGINS / 'shapes.py'}]",
            datasets=f"[{{name: shapes, options: {{maps: {str(maps).lower()}}}}}]",
            model="{encoder: {name: deeplab_resnet18, width: 2, stem: small, head_width: 3, rates: [1, 2]}}"
            if maps
            else "{encoder: {name: mlp, hidden: [4]}}",
            training="{epochs: 1, batch_size: 8}",
        )
        return run, exported(run, tmp_path / "model")

    return make


@pytest.fixture
def reviews(tmp_path: Path) -> tuple[Finished, ExportedModel]:
    lines = [f"{text} {'again ' * n}\t{label}" for n in range(8) for text, label in REVIEWS]
    (tmp_path / "reviews.tsv").write_text("text\tlabel\n" + "\n".join(lines) + "\n")
    (tmp_path / "small.yaml").write_text(
        "datasets: [{name: text, options: {tasks: {reviews: reviews.tsv}, length: 9}}]\n"
        "methods: [equal]\nseeds: [0]\nfloors: []\nmodel: {encoder: {name: averaged, dimensions: 6}}\n"
        "training: {epochs: 2, batch_size: 4}\n"
    )
    run = finish(tmp_path / "home", tmp_path / "small.yaml", tmp_path)
    return run, exported(run, tmp_path / "model")


def scores(model: ExportedModel, run: Finished, task: str) -> torch.Tensor:
    """Of the prepared test split, as measuring hears of them."""
    found: list[torch.Tensor] = []
    model.evaluate(run.data.folder, tell=lambda batch, told: found.extend([told[task]] if task in told else []))
    return torch.cat(found)


def test_what_is_predicted_is_what_is_measured(vectors: tuple[Finished, ExportedModel]) -> None:
    run, model = vectors
    samples = run.data.splits["test"]["b"]
    found = model.predict(samples.inputs, "b")["b"]
    assert torch.equal(torch.from_numpy(found.scores), scores(model, run, "b"))
    assert found.probabilities is not None and np.allclose(found.probabilities.sum(1), 1)
    right = np.mean(found.labels == samples.targets["b"].numpy())
    assert 100 * right == pytest.approx(run.record.metrics["test"]["b"]["accuracy"])
    each = model.predict({"b": samples.inputs, "c": samples.inputs[:2]})
    assert len(each["b"]) == len(samples) and each["c"].probabilities is None and each["c"].labels.shape == (2,)


def test_inputs_of_another_kind_are_refused(vectors: tuple[Finished, ExportedModel]) -> None:
    _, model = vectors
    for inputs, said in (
        (np.zeros((2, 5), np.float32), r"shape \[2, 5\], the model reads \[N, 6\] of float32"),
        (np.zeros(6, np.float32), r"shape \[6\], the model reads \[N, 6\]"),
        (np.array([[0.0] * 6, [0.0] * 5 + [np.nan]]), "row 2 has no finite number in place 6"),
        (pd.DataFrame(np.zeros((2, 5)), columns=FEATURES[:5]), "5 columns of numbers"),
        (["a text"], "the inputs are texts, the model reads vectors"),
        ([], "nothing to predict"),
        (np.zeros((0, 6), np.float32), "nothing to predict"),
        (object(), "the model reads"),
    ):
        with pytest.raises(UserError, match=said):
            model.predict(inputs, "a")
    with pytest.raises(UserError, match="no task 'd'"):
        model.predict(np.zeros((1, 6), np.float32), "d")
    with pytest.raises(UserError, match="inputs of its own; name the task"):
        model.predict(np.zeros((1, 6), np.float32))


def test_a_prepared_set_gives_its_metrics_and_rows(
    vectors: tuple[Finished, ExportedModel], finished: Finish, tmp_path: Path
) -> None:
    run, model = vectors
    done = mtlscale("predict", model.folder, run.data.folder, "--output", tmp_path / "found.parquet")
    assert done.code == 0 and f"are those of run {run.run_id} to the last digit" in done.stdout
    rows = pq.read_table(tmp_path / "found.parquet").to_pandas()
    assert len(rows) == 61 + 40 + 23 and list(rows) == ["id", "task", "label", "score", "truth"]
    of_b = rows[rows.task == "b"]
    accuracy = 100 * (of_b.label == of_b.truth).mean()
    assert accuracy == pytest.approx(run.record.metrics["test"]["b"]["accuracy"])
    printed = json.loads(mtlscale("predict", model.folder, run.data.folder, "--split", "val", "--json").stdout)
    assert printed == run.record.metrics["val"]
    assert "no split 'later'" in refused("predict", model.folder, run.data.folder, "--split", "later")
    other = finished(datasets="[{name: uneven, options: {shared: true}}]")
    assert "has inputs shared, the model reads per_task" in refused("predict", model.folder, other.data.folder)


def test_a_table_of_features(vectors: tuple[Finished, ExportedModel], tmp_path: Path) -> None:
    run, model = vectors
    values = run.data.splits["test"]["a"].inputs.numpy().astype(np.float64)
    frame = pd.DataFrame(values, columns=FEATURES)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    out = tmp_path / "found.csv"
    done = mtlscale("predict", model.folder, tmp_path / "rows.csv", "--task", "a", "--output", out, "--probabilities")
    assert done.code == 0 and "61 predicted" in done.stderr
    rows = list(csv.DictReader(out.open()))
    assert list(rows[0]) == ["row", "a", "a.score", "a.p.0", "a.p.1"]
    wanted = model.predict(run.data.splits["test"]["a"].inputs, "a")["a"]
    assert [int(row["a"]) for row in rows] == wanted.labels.tolist()
    frame.loc[3, "f2"] = np.nan
    frame.assign(task=["a", "c"] * 30 + ["b"]).to_parquet(tmp_path / "rows.parquet")
    command = ("predict", model.folder, tmp_path / "rows.parquet")
    assert "row 4 has no value in f2; mend it, or pass --skip-bad" in refused(*command)
    done = mtlscale(*command, "--skip-bad")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == 60 and {line["task"] for line in lines} == {"a", "b", "c"}
    assert "left out: row 4 has no value in f2" in done.stderr
    frame.drop(columns="f5").to_csv(tmp_path / "narrow.csv", index=False)
    assert "5 columns of numbers" in refused("predict", model.folder, tmp_path / "narrow.csv", "--task", "a")
    (tmp_path / "empty.csv").write_text(",".join(FEATURES) + "\n")
    assert "has no row" in refused("predict", model.folder, tmp_path / "empty.csv", "--task", "a")
    assert "does not exist" in refused("predict", model.folder, tmp_path / "none.csv", "--task", "a")
    assert "end its name with" in refused("predict", model.folder, tmp_path / "rows.csv", "--output", "x.pdf")
    assert not list(tmp_path.glob(".found*"))


def test_raw_features_are_scaled_as_the_prepared_ones_were(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    raw = pd.DataFrame({"task": ["x", "y"] * 30, "size": rng.normal(40, 9, 60), "age": rng.integers(1, 90, 60)})
    raw["target"] = raw["size"] / 10
    raw.to_csv(tmp_path / "own.csv", index=False)
    (tmp_path / "small.yaml").write_text(
        "datasets: [table]\nmethods: [equal]\nseeds: [0]\nfloors: []\ntraining: {epochs: 1, batch_size: 8}\n"
    )
    run = finish(tmp_path / "home", tmp_path / "small.yaml", tmp_path / "own.csv")
    model = exported(run, tmp_path / "model")
    assert model.description.input.features == ["size", "age"]
    shuffled = raw[["age", "target", "size"]][raw.task == "x"]
    found = model.reader.tensor(shuffled)
    known = torch.cat([run.data.splits[split]["x"].inputs for split in ("train", "val", "test")])
    assert {tuple(row) for row in found.tolist()} == {tuple(row) for row in known.tolist()}
    with pytest.raises(UserError, match="no column 'age'; the model reads"):
        model.predict(shuffled.drop(columns="age"), "x")
    with pytest.raises(UserError, match="no column 'age', only ' age' with blanks around it; the model reads"):
        model.predict(shuffled.rename(columns={"age": " age"}), "x")
    with pytest.raises(
        UserError, match=r"device gpu cannot be used \(torch knows no such device\); choose cpu, or cuda"
    ):
        load_model(tmp_path / "model", device="gpu")


def test_categories_become_the_codes_of_training_and_others_are_told(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    raw = pd.DataFrame({"task": "x", "colour": rng.choice(["red", "blue"], 60), "floor": rng.integers(1, 4, 60)})
    raw["target"] = (raw["colour"] == "red") * 1.5 + raw["floor"]
    raw.to_csv(tmp_path / "own.csv", index=False)
    (tmp_path / "small.yaml").write_text(
        "datasets: [{name: table, options: {categorical: [colour, floor]}}]\nmethods: [linear]\nseeds: [0]\n"
        "floors: []\ntraining: {epochs: 1, batch_size: 8}\n"
    )
    run = finish(tmp_path / "home", tmp_path / "small.yaml", tmp_path / "own.csv")
    model = exported(run, tmp_path / "model")
    pd.DataFrame({"floor": [2.0, 9.0], "colour": ["red", "green"]}).to_csv(tmp_path / "new.csv", index=False)
    done = mtlscale("predict", model.folder, tmp_path / "new.csv", "--output", tmp_path / "found.csv")
    assert "warning: values that training does not have count as unknown: colour (1), floor (1)" in done.stderr
    found = [float(row["x"]) for row in csv.DictReader((tmp_path / "found.csv").open())]
    assert found[0] == pytest.approx(3.5, abs=0.3)
    codes = torch.tensor([[2.0, 2.0], [0.0, 0.0]])  # as prepared: blue, red; 1, 2, 3
    assert model.predict(codes)["x"].scores.ravel().tolist() == pytest.approx(found, abs=1e-5)
    pd.DataFrame({"floor": [2.0], "colour": [None]}).to_parquet(tmp_path / "gap.parquet")
    assert "row 1 has no value in colour" in refused("predict", model.folder, tmp_path / "gap.parquet")


def test_raw_pixels_of_digits_are_scaled_and_inputs_far_outside_training_are_told(tmp_path: Path) -> None:
    from sklearn.datasets import load_digits

    (tmp_path / "small.yaml").write_text(
        "datasets: [digits]\nmethods: [equal]\nseeds: [0]\nfloors: []\ntraining: {epochs: 1, batch_size: 64}\n"
    )
    run = finish(tmp_path / "home", tmp_path / "small.yaml")
    model = exported(run, tmp_path / "model")
    raw = pd.DataFrame(load_digits(return_X_y=True)[0][:50])
    raw.columns = [f"p{place}" for place in range(64)]
    raw.to_csv(tmp_path / "raw.csv", index=False)
    done = mtlscale("predict", model.folder, tmp_path / "raw.csv", "--task", "digit3", "--output", tmp_path / "a.csv")
    assert "50 predicted" in done.stderr and "warning" not in done.stderr
    scores = [float(row["digit3.score"]) for row in csv.DictReader((tmp_path / "a.csv").open())]
    prepared = (raw.to_numpy() / 16).astype(np.float32)
    assert scores == pytest.approx(model.predict(prepared, "digit3")["digit3"].confidence.tolist(), abs=1e-5)
    with pytest.warns(UserWarning, match="50 of 50 inputs lie far outside the training range, the first: row 1 has"):
        model.predict(raw.to_numpy(), "digit3")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.predict(pd.DataFrame(raw.to_numpy()).to_numpy(), "digit3")  # an array that cannot be written to
    (warning,) = caught
    assert "row 1 has 5 in column 3, training 0 to 1; an array is taken as scaled already: give a data frame" in str(
        warning.message
    )
    (raw * 16).to_csv(tmp_path / "far.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the command says it, once and in the units of the table
        done = mtlscale(
            "predict", model.folder, tmp_path / "far.csv", "--task", "digit3", "--output", tmp_path / "b.csv"
        )
    assert "warning: 50 of 50 inputs lie far outside the training range" in done.stderr


def test_lines_of_text(reviews: tuple[Finished, ExportedModel], tmp_path: Path) -> None:
    _, model = reviews
    assert "Texts become token ids as the data's did." in (tmp_path / "model" / "README.md").read_text()
    words = model.reader.vocabulary
    ids = model.reader.tensor(["Good FUN, unheard-of!", ""])
    assert [words[id] for id in ids[0].tolist()[:5]] == ["good", "fun", "<unk>", "<unk>", "<pad>"]
    assert ids[1].tolist()[:2] == [1, 0] and ids.dtype == torch.int32
    (tmp_path / "lines.txt").write_text("good good fun\nbad bad dull\n")
    done = mtlscale("predict", model.folder, tmp_path / "lines.txt")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["line"] for line in lines] == [1, 2] and {line["reviews"] for line in lines} <= {"0", "1"}
    (tmp_path / "lines.txt").write_bytes(b"caf\xe9\n")
    assert "is not UTF-8" in refused("predict", model.folder, tmp_path / "lines.txt")
    pq.write_table(pa.table({"text": ["good", None]}), tmp_path / "texts.parquet")
    assert "row 2 has no text" in refused("predict", model.folder, tmp_path / "texts.parquet")
    with pytest.raises(UserError, match="token ids outside 0"):
        model.predict(torch.full((1, *model.suite.input_shape), 10_000))


def test_pictures(pictures: Callable[[bool], tuple[Finished, ExportedModel]], tmp_path: Path) -> None:
    run, model = pictures(False)
    inputs = run.data.splits["test"]["all"].inputs
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number, image in enumerate(inputs):
        (folder / f"{number}.png").write_bytes(encoded(image.permute(1, 2, 0).numpy(), "PNG"))
    done = mtlscale("predict", model.folder, folder)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["disc"] for line in lines] == model.predict(inputs)["disc"].labels.tolist()
    assert lines[0]["path"] == str(folder / "0.png") and "red.score" in lines[0]
    (folder / "5.png").write_bytes(b"no picture")
    assert f"{folder / '5.png'} is corrupt" in refused("predict", model.folder, folder)
    done = mtlscale("predict", model.folder, folder, "--skip-bad")
    assert len(done.stdout.splitlines()) == 7 and "left out:" in done.stderr and "5.png is corrupt" in done.stderr
    assert "7 predicted, 1 left out" in done.stderr
    (folder / "0.png").rename(tmp_path / "0.txt")
    assert "0.txt is not text" in refused("predict", model.folder, tmp_path / "0.txt")
    (tmp_path / "bare").mkdir()
    assert "holds no picture" in refused("predict", model.folder, tmp_path / "bare")


def test_maps(pictures: Callable[[bool], tuple[Finished, ExportedModel]], tmp_path: Path) -> None:
    run, model = pictures(True)
    found = model.predict(run.data.splits["test"]["all"].inputs)
    assert found["kind"].labels.shape == (8, 16, 16) and found["normals"].scores.shape == (8, 3, 16, 16)
    command = ("predict", model.folder, run.data.folder, "--output")
    assert "which .csv cannot hold" in refused(*command, tmp_path / "maps.csv")
    assert mtlscale(*command, tmp_path / "maps.parquet").code == 0
    rows = pq.read_table(tmp_path / "maps.parquet")
    assert np.array(rows["kind"].to_pylist()).tolist() == found["kind"].labels.tolist()


def test_as_a_python_function(vectors: tuple[Finished, ExportedModel]) -> None:
    _, model = vectors
    function = _load_pyfunc(str(model.folder))
    frame = pd.DataFrame(np.ones((3, 6)), columns=FEATURES, index=[7, 8, 9])
    found = function.predict(frame)
    assert list(found) == ["a", "a.score", "b", "b.score", "c"] and list(found.index) == [7, 8, 9]
    assert list(function.predict(frame, {"task": "b"})) == ["b", "b.score"]
    by_row = function.predict(frame.assign(task=["b", "a", "b"]))
    assert list(by_row.index) == [7, 8, 9] and by_row["label"].tolist()[1] == found["a"].tolist()[1]


@pytest.mark.parametrize("encoder", ["embedding_mlp", "deepfm", "dcn_v2"])
def test_encoders_of_categories_predict_raw_ids_as_they_were_trained(encoder: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    raw = pd.DataFrame({"user": rng.integers(100, 130, 400), "item": rng.choice(list("abcdefgh"), 400)})
    raw["age"] = rng.normal(size=400)
    raw["like"] = np.where(raw["user"] % 2 == (raw["item"] < "e"), "yes", "no")
    raw["rating"] = raw["user"] % 3 + 0.1 * raw["age"]
    raw.to_csv(tmp_path / "own.csv", index=False)
    (tmp_path / "small.yaml").write_text(
        "datasets: [{name: table, options: {targets: {like: class, rating: regression}, categorical: [user]}}]\n"
        "methods: [mgda]\nseeds: [0]\nfloors: []\ntraining: {epochs: 4, batch_size: 32, lr: 0.02}\n"
        f"model: {{encoder: {{name: {encoder}, hidden: [16], dropout: 0.0}}}}\n"
    )
    run = finish(tmp_path / "home", tmp_path / "small.yaml", tmp_path / "own.csv")
    model = exported(run, tmp_path / "model")
    assert run.data.suite.categories == (31, 9, 0) and run.data.suite.extras["columns"] == ["user", "item", "age"]

    mtlscale("predict", model.folder, run.data.folder, "--output", tmp_path / "test.csv")
    frame = pd.read_csv(tmp_path / "test.csv")
    measured = run.record.metrics["test"]
    assert 100 * (frame["like"] == frame["like.truth"]).mean() == pytest.approx(measured["like"]["accuracy"])
    rmse = np.sqrt(((frame["rating"] - frame["rating.truth"]) ** 2).mean()) / frame["rating.truth"].std()
    assert rmse < 0.9

    asked = raw.drop(columns=["like", "rating"]).iloc[frame["id"].astype(int)]
    asked.to_csv(tmp_path / "again.csv", index=False)
    mtlscale("predict", model.folder, tmp_path / "again.csv", "--output", tmp_path / "found.csv")
    again = pd.read_csv(tmp_path / "found.csv")
    assert (again["like"] == frame["like"]).all()
    np.testing.assert_allclose(again["rating"], frame["rating"], rtol=1e-4, atol=1e-4)

    stranger = asked.assign(user=7).head(3)
    stranger.to_csv(tmp_path / "stranger.csv", index=False)
    done = mtlscale("predict", model.folder, tmp_path / "stranger.csv", "--output", tmp_path / "strange.csv")
    assert done.code == 0 and "count as unknown: user (3)" in done.stderr


def test_a_table_of_several_targets_is_predicted_from_its_raw_columns(tmp_path: Path) -> None:
    """Dates, categories and empty cells become what the pipeline made of them; numbers have the units of the file."""
    rng = np.random.default_rng(0)
    size = rng.normal(40, 9, 90)
    raw = pd.DataFrame(
        {"size": size, "day": pd.date_range("2024-01-01", periods=90), "colour": rng.choice(["red", "blue"], 90)}
    )
    raw["price"], raw["kind"] = 1000 + 30 * size, np.where(size > 40, "large", "small")
    raw.loc[::9, "size"] = None
    raw.to_csv(tmp_path / "own.csv", index=False)
    (tmp_path / "small.yaml").write_text(
        "datasets: [{name: table, options: {targets: {price: regression, kind: class}}}]\nmethods: [linear]\n"
        "seeds: [0]\nfloors: []\ntraining: {epochs: 1, batch_size: 8}\n"
    )
    run = finish(tmp_path / "home", tmp_path / "small.yaml", tmp_path / "own.csv")
    model = exported(run, tmp_path / "model")
    assert model.description.input.features == ["size", "day", "colour"]
    inputs = model.reader.tensor(raw[["colour", "size", "day"]])
    known = torch.cat([run.data.splits[split]["all"].inputs for split in ("train", "val", "test")])
    assert sorted(inputs.tolist()) == sorted(known.tolist())

    new = pd.DataFrame({"size": [50.0, 30.0], "day": ["2024-02-01"] * 2, "colour": ["red", "green"], "other": [1, 2]})
    new.to_csv(tmp_path / "new.csv", index=False)
    done = mtlscale("predict", model.folder, tmp_path / "new.csv", "--output", tmp_path / "found.csv")
    assert done.code == 0 and "count as unknown: colour (1)" in done.stderr
    rows = list(csv.DictReader((tmp_path / "found.csv").open()))
    assert [float(row["price"]) for row in rows] == pytest.approx([2500, 1900], rel=0.05)
    assert [row["kind"] for row in rows] == ["large", "small"]

    mtlscale("predict", model.folder, run.data.folder, "--output", tmp_path / "test.csv")
    truth = [float(row["price.truth"]) for row in csv.DictReader((tmp_path / "test.csv").open())]
    assert set(np.round(truth, 1)) <= set(np.round(raw["price"], 1))
    new.assign(size="much").to_csv(tmp_path / "bad.csv", index=False)
    assert "row 1 has 'much' in size, which is no number" in refused("predict", model.folder, tmp_path / "bad.csv")
