"""Molecules from their SMILES to predictions in units, by an exported model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from command import mtlscale
from exported_runs import finish

from mtlscale.inference import export, load_model
from pipelines.graph.qm9 import TASKS

COLUMNS = ("mu", "alpha", "homo", "lumo", "r2", "zpve", "u0", "u298", "h298", "g298", "cv")


def test_a_model_of_graphs_predicts_what_its_run_measured(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"mol_id": [f"gdb_{number}" for number in range(60)]})
    rows["smiles"] = ["".join(rng.choice(list("CCNO"), rng.integers(1, 9))) for _ in range(60)]
    length = rows["smiles"].str.len() + 0.1 * rng.normal(size=60)
    rows[list(COLUMNS)] = np.outer(length, np.arange(1, 12))
    rows.to_csv(tmp_path / "qm9.csv", index=False)
    (tmp_path / "small.yaml").write_text(
        "datasets: [qm9]\nmethods: [mgda]\nseeds: [0]\nfloors: []\n"
        "training: {epochs: 3, batch_size: 16, lr: 0.01}\nmodel: {encoder: {name: mpnn, width: 8, rounds: 1}}\n"
    )
    run = finish(tmp_path / "home", tmp_path / "small.yaml", tmp_path / "qm9.csv")
    model = load_model(export(run.home, run.run_id, tmp_path / "model"))

    mtlscale("predict", model.folder, run.data.folder, "--output", tmp_path / "test.csv")
    frame = pd.read_csv(tmp_path / "test.csv")
    for task, column in zip(TASKS, COLUMNS, strict=True):
        error = (frame[task] - frame[f"{task}.truth"]).abs().mean()
        assert error == pytest.approx(run.record.metrics["test"][task]["mae"], rel=1e-3), task
        if column in ("mu", "cv"):
            truth = rows.set_index("mol_id").loc[frame["id"], column]
            np.testing.assert_allclose(frame[f"{task}.truth"], truth, rtol=1e-5)

    inputs = run.data.splits["test"]["all"].inputs
    numbers = model.predict(torch.flip(inputs, [0]))["mu"].labels[::-1]
    np.testing.assert_allclose(numbers, frame["mu"], rtol=1e-5)
