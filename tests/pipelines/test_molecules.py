"""Tables with a column of molecules: the graphs they become, what is refused, and models of them from end to end."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from command import mtlscale
from exported_runs import finish

from mtlscale.config import UserError
from mtlscale.data import PreparedData, load_prepared
from mtlscale.data.format.graphs import GraphLayout
from mtlscale.data.format.molecules import fingerprint, molecule_layout, molecule_row, table_molecule
from mtlscale.data.readers.prepared import read_ids
from mtlscale.data.tables.smiles import AROMATIC, DOUBLE, ELEMENTS, QUADRUPLE, SINGLE, BadSmiles, read_smiles
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.execution.preparing.starter_settings import METHODS, starter_methods
from mtlscale.inference import export, load_model
from pipelines.table_inspection import inspect_table

ROWS = 120
TARGETS = {"NR-A": "class", "SR-B": "class", "size": "regression"}


def molecules(rows: int = ROWS) -> pd.DataFrame:
    """Chains, rings and salts; one assay asks for nitrogen, the other for a ring, and some labels are missing."""
    rng = np.random.default_rng(0)
    parts = np.array(["C", "C", "N", "O", "C(=O)", "C(Cl)", "[Si](C)(C)", "S"])
    chains = ["".join(rng.choice(parts, rng.integers(2, 7))) for _ in range(rows)]
    texts = [f"c1ccccc1{chain}" if ring else chain for chain, ring in zip(chains, rng.random(rows) > 0.5, strict=True)]
    texts[3] += ".[Na+]"
    frame = pd.DataFrame({"smiles": texts})
    frame["NR-A"] = frame["smiles"].str.contains("N(?!a)").astype(float)
    frame["SR-B"] = frame["smiles"].str.contains("c1").astype(float)
    frame["size"] = frame["smiles"].str.len() + 0.25
    frame.loc[rng.random(rows) < 0.2, "NR-A"] = np.nan
    frame.loc[rng.random(rows) < 0.2, "SR-B"] = np.nan
    return frame


def ready(frame: pd.DataFrame, folder: Path, *, skip_bad: bool = False, **options: Any) -> PreparedData:
    frame.to_csv(folder / "assays.csv", index=False)
    options = {"targets": TARGETS, "smiles": "smiles", **options}
    return load_prepared(prepare("table", options, folder / "assays.csv", folder / "home", skip_bad=skip_bad))


# -- the text ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("smiles", "elements", "bonds"),
    [
        ("c1cc[se]c1", ["C", "C", "C", "Se", "C"], {(i, i + 1): AROMATIC for i in range(4)} | {(0, 4): AROMATIC}),
        ("*C", ["*", "C"], {(0, 1): SINGLE}),
        ("[Ga+]$[As-]", ["Ga", "As"], {(0, 1): QUADRUPLE}),
        ("C%(123)CC%(123)", ["C"] * 3, {(0, 1): 1, (1, 2): 1, (0, 2): 1}),
        ("F/C=C\\\\F", ["F", "C", "C", "F"], {(0, 1): 1, (1, 2): DOUBLE, (2, 3): 1}),
        ("N[C@TH1H](C)O", ["N", "C", "C", "O"], {(0, 1): 1, (1, 2): 1, (1, 3): 1}),
    ],
)
def test_what_else_a_smiles_may_hold(smiles: str, elements: list[str], bonds: dict[tuple[int, int], int]) -> None:
    molecule = read_smiles(smiles)
    assert (molecule.elements, molecule.bonds) == (elements, bonds)


@pytest.mark.parametrize(
    ("smiles", "problem"),
    [
        ("FAIL", "has 'A' at place 2"),
        ("CC[Xx]", "has [Xx] at place 3, which is no atom"),
        ("C1CC", "leaves ring 1 open, from place 2"),
        ("CC(C", "leaves a branch open, from place 3"),
        ("CC)C", "closes a branch that it does not open, at place 3"),
        ("CC=", "ends with a bond that leads to no atom, at place 3"),
        ("C(=)C", "has ')' at place 4, behind a bond that leads to no atom"),
        ("=CC", "begins with '=', before any atom, at place 1"),
        ("C12CC12", "binds atoms 1 and 3 twice, at place 7"),
    ],
)
def test_a_text_that_is_none_is_said_where(smiles: str, problem: str) -> None:
    with pytest.raises(BadSmiles, match=re.escape(problem)):
        read_smiles(smiles)


def test_hydrogens_are_a_number_at_their_atom_however_they_stand() -> None:
    for written in ("[H]C([H])([H])[NH2]", "CN", "[CH3]N([H])[H]"):
        molecule = table_molecule(written)
        assert (molecule.elements, molecule.hydrogens, molecule.bonds) == (["C", "N"], [3, 2], {(0, 1): SINGLE})
    assert table_molecule("[H][H]").elements == ["H", "H"]
    assert table_molecule("[H+].[Cl-]").elements == ["H", "Cl"]


# -- the graphs ----------------------------------------------------------------------------------------------------


def test_a_row_holds_the_graph_of_its_molecule(tmp_path: Path) -> None:
    frame = molecules()
    data = ready(frame, tmp_path)
    layout = GraphLayout.of(data.suite.extras)
    assert layout is not None and layout.edges and len(data.suite.categories) == data.suite.input_shape[0]
    assert [task.loss for task in data.suite.tasks] == ["bce", "bce", "mse"]
    assert "standardised" not in data.manifest.notes and data.manifest.notes["features"] == ["smiles"]

    for split in ("train", "val", "test"):
        samples = data.splits[split]["all"]
        for row, inputs in zip(read_ids(data.folder, split, "all"), samples.inputs, strict=True):
            molecule, nodes = table_molecule(frame["smiles"][int(row)]), layout.read_nodes(inputs)
            count = len(molecule.elements)
            assert [ELEMENTS[code - 2] for code in nodes[:count, 0]] == molecule.elements and not nodes[count:].any()
            assert (nodes[:count, 1] - 1).tolist() == molecule.hydrogens
            edges = [edge for edge in layout.read_edge_list(inputs).tolist() if edge[2]]
            assert {(first - 1, second - 1): kind for first, second, kind in edges} == molecule.bonds
        missing = frame["NR-A"].isna()[[int(row) for row in read_ids(data.folder, split, "all")]].to_numpy()
        assert ((samples.targets["NR-A"] < 0).numpy() == missing).all()


def test_the_fingerprint_is_of_the_molecule_not_of_how_it_is_written() -> None:
    texts = ["OCC", "CCO", "C(O)C", "CCN", "CC=O", "c1ccccc1O", "Oc1ccccc1"]
    layout = molecule_layout(9, 9)
    rows = torch.from_numpy(np.stack([molecule_row(table_molecule(text), layout) for text in texts]))
    counts = fingerprint(layout, rows)
    assert counts.shape == (7, 1024) and (counts.sum(1) == 3 * torch.tensor([3, 3, 3, 3, 3, 7, 7])).all()
    assert (counts[0] == counts[1]).all() and (counts[0] == counts[2]).all() and (counts[5] == counts[6]).all()
    assert len({tuple(row.tolist()) for row in counts}) == 4
    wider = molecule_layout(20, 30)
    again = torch.from_numpy(np.stack([molecule_row(table_molecule(text), wider) for text in texts]))
    assert (fingerprint(wider, again) == counts).all()


# -- what is refused -----------------------------------------------------------------------------------------------


def test_rows_without_a_molecule_are_named_and_counted(tmp_path: Path) -> None:
    frame = molecules()
    frame.loc[6, "smiles"], frame.loc[8, "smiles"] = "C1CC", None
    problem = (
        r"2 rows cannot be used, the first: row 7 has 'C1CC' in smiles, no SMILES: it leaves ring 1 open, from place 2"
    )
    with pytest.raises(UserError, match=problem):
        ready(frame, tmp_path)
    data = ready(frame, tmp_path, skip_bad=True)
    assert data.manifest.notes["skipped"]["count"] == 2
    assert "row 9 has no molecule in smiles" in data.manifest.notes["skipped"]["first"]
    assert sum(data.manifest.counts["size"].values()) == ROWS - 2


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"smiles": "smile"}, "there is no column 'smile'; did you mean smiles"),
        ({"smiles": "size", "targets": {"NR-A": "class"}}, "column 'size' of `smiles` holds double, no texts"),
        ({"features": ["smiles", "extra"]}, "is the only input, `features` has 'extra'; drop `features`, or `smiles`"),
        ({"id": "smiles"}, "column 'smiles' of `smiles` has another role"),
        ({"targets": {}}, "`smiles` goes with `targets`"),
    ],
)
def test_other_uses_of_the_column_are_refused(options: dict[str, Any], problem: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=re.escape(problem)):
        ready(molecules().assign(extra=1.5), tmp_path, **options)


def test_other_columns_are_left_out(tmp_path: Path) -> None:
    data = ready(molecules().assign(weight=range(ROWS)), tmp_path)
    assert data.manifest.notes["left_out"] == {"weight": "the molecule is the input"}


def test_a_split_may_lack_a_class(tmp_path: Path) -> None:
    frame = molecules().assign(rare=[1.0, *[0.0] * (ROWS - 1)])
    data = ready(frame, tmp_path, targets={"rare": "class", "size": "regression"})
    counts = data.manifest.class_counts["rare"]
    assert counts["train"]["1"] == 1 and counts["val"]["1"] == counts["test"]["1"] == 0
    assert data.suite.tasks[0].metrics == ("accuracy", "f1")


# -- from the file to predictions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["assays.csv", "assays.csv.gz"])
def test_inspect_takes_the_molecules_as_input_and_the_assays_as_targets(name: str, tmp_path: Path) -> None:
    frame = molecules().assign(mol_id=[f"TOX{number}" for number in range(ROWS)], rare=[1.0, *[0.0] * (ROWS - 1)])
    frame.loc[5, "smiles"] = "FAIL"
    frame.to_csv(tmp_path / name, index=False)
    report = inspect_table(tmp_path / name, [], {})
    assert report.options == {"smiles": "smiles", "targets": TARGETS, "constant": "drop"}
    taken = {column.name: (column.role, column.kind) for column in report.columns}
    assert taken["smiles"] == ("input", "smiles") and taken["mol_id"][0] == taken["rare"][0] == "left out"
    assert any("row 6 has 'FAIL' in smiles" in warning for warning in report.warnings)

    chosen = inspect_table(tmp_path / name, ["size"], {})
    assert chosen.options["targets"] == {"size": "regression"} and chosen.options["smiles"] == "smiles"
    by_hand = inspect_table(tmp_path / name, ["SR-B"], {"features": ["size"]})
    assert "smiles" not in by_hand.options


def test_many_assays_that_are_hardly_measured_are_one_line(tmp_path: Path) -> None:
    labels = [np.nan] * (200 - 6) + [0.0, 1.0] * 3
    frame = molecules(200)[["smiles", "SR-B"]].assign(**{f"assay{number}": labels for number in range(6)})
    frame.to_csv(tmp_path / "sparse.csv", index=False)
    report = inspect_table(tmp_path / "sparse.csv", [], {})
    lines = [warning for warning in report.warnings if "have a label in less than 5% of the rows" in warning]
    assert len(lines) == 1 and lines[0].startswith("6 targets") and len(report.options["targets"]) == 7


def test_molecules_alone_have_no_target(tmp_path: Path) -> None:
    molecules()[["smiles"]].to_csv(tmp_path / "alone.csv", index=False)
    with pytest.raises(UserError, match="no column beside the molecules in 'smiles' may be a target; name one by"):
        inspect_table(tmp_path / "alone.csv", [], {})


def test_many_assays_begin_with_methods_that_take_no_network_each() -> None:
    assert starter_methods(12, graphs=True) == list(METHODS) == starter_methods(40)
    assert starter_methods(27, graphs=True) == [method for method in METHODS if method != "stl"]
    assert starter_methods(617, graphs=True) == ["equal", "uncertainty"]


def test_words_are_no_molecules(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"name": [f"Person {row}" for row in range(60)], "grade": rng.choice(["C", "N", "O"], 60),
                          "x": rng.normal(size=60), "y": rng.choice(["a", "b"], 60)})  # fmt: skip
    frame.to_csv(tmp_path / "words.csv", index=False)
    assert "smiles" not in inspect_table(tmp_path / "words.csv", ["y"], {}).options


def test_a_model_of_molecules_predicts_what_its_run_measured(tmp_path: Path) -> None:
    """From the start file that `inspect` writes, with the floors beside it, to predictions of a raw file."""
    frame = molecules()
    frame.to_csv(tmp_path / "assays.csv", index=False)
    file = tmp_path / "assays.yaml"
    done = mtlscale("inspect", tmp_path / "assays.csv", "--write", file)
    assert done.code == 0 and "NR-A" in done.stdout, done.stderr
    written = yaml.safe_load(file.read_text())
    assert written["model"]["encoder"]["name"] == "mpnn" and written["floors"] == ["constant", "linear"]

    small = {"methods": ["equal"], "floors": [], "seeds": [0], "training": {"epochs": 3, "batch_size": 16, "lr": 0.01},
             "model": {"encoder": {"name": "mpnn", "width": 8, "rounds": 1}}}  # fmt: skip
    file.write_text(yaml.safe_dump(written | small))
    run = finish(tmp_path / "home", file, tmp_path / "assays.csv")
    model = load_model(export(run.home, run.run_id, tmp_path / "model"))

    test_rows = [int(row) for row in read_ids(run.data.folder, "test", "all")]
    raw = frame.iloc[test_rows]
    for task in ("NR-A", "SR-B"):
        labelled = raw[task].notna().to_numpy()
        guesses = np.array([float(label) for label in model.predict(raw)[task].labels])[labelled]
        measured = run.record.metrics["test"][task]["accuracy"]
        assert 100 * (guesses == raw[task].to_numpy()[labelled]).mean() == pytest.approx(measured, rel=1e-6)
    prepared = model.predict(run.data.splits["test"]["all"].inputs)
    np.testing.assert_allclose(model.predict(raw)["size"].labels, prepared["size"].labels, rtol=1e-5)

    bad = raw.assign(smiles=["C1CC", "C" * 200, *raw["smiles"][2:]])
    bad.to_csv(tmp_path / "bad.csv", index=False)
    refused = mtlscale("predict", model.folder, tmp_path / "bad.csv")
    assert refused.code and "row 1 has 'C1CC' in smiles, no SMILES" in refused.stderr
    done = mtlscale("predict", model.folder, tmp_path / "bad.csv", "--skip-bad", "--output", tmp_path / "out.csv")
    assert done.code == 0 and "a molecule of 200 atoms" in done.stdout + done.stderr
    assert len(pd.read_csv(tmp_path / "out.csv")) == len(raw) - 2


@pytest.mark.parametrize("floor", ["constant", "linear", "forest", "boosting"])
def test_floors_read_molecules(floor: str, tmp_path: Path) -> None:
    molecules(240).to_csv(tmp_path / "assays.csv", index=False)
    experiment = {"datasets": [{"name": "table", "options": {"targets": TARGETS, "smiles": "smiles"}}], "seeds": [0],
                  "methods": [floor], "floors": [], "model": {"encoder": {"name": "mpnn"}}}  # fmt: skip
    (tmp_path / "floor.yaml").write_text(yaml.safe_dump(experiment))
    run = finish(tmp_path / "home", tmp_path / "floor.yaml", tmp_path / "assays.csv")
    aurocs = [run.record.metrics["test"][task]["auroc"] for task in ("NR-A", "SR-B")]
    if floor == "constant":
        assert aurocs == [50, 50]
        return
    assert min(aurocs) > 90
    model = load_model(export(run.home, run.run_id, tmp_path / "model"))
    inputs = run.data.splits["test"]["all"].inputs
    guesses = model.predict(pd.read_csv(tmp_path / "assays.csv").iloc[
        [int(row) for row in read_ids(run.data.folder, "test", "all")]])  # fmt: skip
    np.testing.assert_allclose(guesses["size"].labels, model.predict(inputs)["size"].labels, rtol=1e-5)


def test_a_part_of_tox21(shared_data: Path, tmp_path: Path) -> None:
    with gzip.open(shared_data / "molecules" / "tox21.csv.gz", "rt") as file:
        frame = pd.read_csv(file).sample(400, random_state=0)
    frame.to_csv(tmp_path / "tox21.csv.gz", index=False)
    report = inspect_table(tmp_path / "tox21.csv.gz", [], {})
    assert set(report.options["targets"].values()) == {"class"} and report.options["smiles"] == "smiles"

    experiment = {"datasets": [{"name": "table", "options": report.options}], "methods": ["equal"], "seeds": [0],
                  "floors": [], "training": {"epochs": 2, "batch_size": 64, "lr": 1e-3},
                  "model": {"encoder": {"name": "mpnn", "width": 16, "rounds": 2}}}  # fmt: skip
    (tmp_path / "tox21.yaml").write_text(yaml.safe_dump(experiment))
    run = finish(tmp_path / "home", tmp_path / "tox21.yaml", tmp_path / "tox21.csv.gz")
    assert len(run.data.suite.tasks) >= 11 and {task.loss for task in run.data.suite.tasks} == {"bce"}
    labels = run.data.splits["train"]["all"].targets
    share = float(np.mean([(values < 0).double().mean() for values in labels.values()]))
    assert 0.1 < share < 0.25
