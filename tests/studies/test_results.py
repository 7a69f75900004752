"""`studies/results.py`: from a home folder to the pages of results/tables."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mtlscale.config import UserError, load_experiment
from mtlscale.records import Epoch, EpochFile, Home, Ledger
from mtlscale.records.submission_schema import records_of_results

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))
import results

LEFT = Path(__file__).parents[2] / "results" / "digits_few_labels"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home where the runs of an experiment have ended, with epochs of GetMTL's trace for one method."""
    experiment, home = load_experiment(LEFT / "experiment.yaml"), Home(tmp_path / "home")
    for record in records_of_results(LEFT):
        Ledger(home.ledger(experiment.name)).append(record)
        if record.method == "equal":
            epoch = Epoch(epoch=1, phase="train", seconds=1.0, train_loss={}, traces={"kappa": 1.5 + record.seed})
            EpochFile(home.run(record.run_id)).take([epoch])
    return home


def test_a_page_is_made_of_what_a_home_has(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "tables"
    output.mkdir()
    monkeypatch.setattr(
        sys, "argv", ["results", "--home", str(home.root), "--output", str(output), str(LEFT / "experiment.yaml")]
    )
    assert results.main() == 0
    [page] = output.glob("digits_few_labels/*/README.md")
    text = page.read_text(encoding="utf-8")
    assert " runs, seeds 0, 1, 2;" in text and "mtlscale run digits_few_labels" in text
    assert text.count("by seed\n") == 2, "a table of each data set"
    assert "1.5 to 3.5" in text, "of epochs, which the ledger does not have"
    assert "[digits_few_labels](digits_few_labels/" in (output / "README.md").read_text(encoding="utf-8")


def test_experiments_without_runs_are_not_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan of tens of thousands of trials takes minutes."""
    monkeypatch.setattr(results, "left", lambda experiment, home: pytest.fail(f"{experiment.name} is planned"))
    with pytest.raises(UserError, match="no runs of a shipped experiment"):
        list(results._from_records([tmp_path], []))
