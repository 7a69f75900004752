"""A model of tags for tokens, trained and exported: its figures are the run's, its answers a tag for every place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from exported_runs import Finished, finish

from mtlscale.config import UserError
from mtlscale.inference import export, load_model
from mtlscale.inference.predict import predict_set
from mtlscale.inference.results import sink

PLUGIN = Path(__file__).parents[1] / "plugins" / "tagged.py"
ENCODER = "{name: word_char, dimensions: 4, char_dimensions: 3, char_features: 4, state: 3, hidden: [4]}"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("tagged")
    file = folder / "tagged.yaml"
    file.write_text(
        f"name: tagged\nplugins: [{PLUGIN}]\ndatasets: [tagged]\nmethods: [equal]\nfloors: [frequent_tag]\nseeds: [0]\n"
        f"model: {{encoder: {ENCODER}}}\ntraining: {{epochs: 2, batch_size: 8, lr: 1e-2, eval_batch_size: 3}}\n"
    )
    return finish(folder / "home", file)


def test_an_exported_model_measures_and_predicts_tags(run: Finished, tmp_path: Path) -> None:
    folder = export(run.home, run.run_id, tmp_path / "model")
    model = load_model(folder if isinstance(folder, Path) else tmp_path / "model", trust_plugins=True)
    with sink(str(tmp_path / "found.parquet")) as out:
        found = predict_set(model, run.data.folder, "test", out)
    assert found == run.record.metrics["test"]
    rows = pq.read_table(tmp_path / "found.parquet").to_pylist()
    assert len(rows) == 12
    known = set(run.data.suite.tasks[0].classes)
    for row in rows:
        assert len(row["label"]) == len(row["truth"])
        assert set(row["label"]) <= known
        assert set(row["truth"]) <= {*known, None}
    inputs = run.data.splits["test"]["en"].inputs
    said = model.predict(inputs, "en")["en"]
    assert said.labels.shape == tuple(inputs.shape[:2])
    alone = model.predict(inputs[:1].numpy(), "en")["en"]
    assert np.array_equal(alone.labels[0], said.labels[0])
    with pytest.raises(UserError, match="whose words a text does not show; give"):
        model.predict(["w3 w4"], "en")
    with pytest.raises(UserError, match=r"token ids outside 0\.\.19"):
        model.predict(torch.full((1, 7, 4), 20, dtype=torch.int32), "en")


def test_a_run_leaves_a_page_of_sentences(run: Finished) -> None:
    page = (run.home.run(run.run_id) / "predictions.html").read_text()
    assert "<h2>te</h2>" in page
    assert "<rt>" in page
