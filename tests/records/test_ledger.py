"""Records and ledgers survive crashes: whole or not there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mtlscale.records import Epoch, Ledger, PhaseCost, RunRecord, read_record, write_atomically


def record(run_id: str, status: str = "finished") -> RunRecord:
    return RunRecord.model_validate(
        {
            "run_id": run_id,
            "experiment": "e",
            "dataset": "d",
            "method": "m",
            "seed": 0,
            "status": status,
            "spec": {},
            "fingerprint": "f",
            "higher_is_better": {"accuracy": True},
            "main_metrics": {"t": "accuracy"},
        }
    )


def test_a_line_cut_off_by_a_crash_is_skipped_and_the_next_one_stands_on_its_own(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.append(record("a"))
    with ledger.path.open("ab") as file:
        file.write(b'{"run_id": "b", "exper')
    ledger.append(record("c"))
    assert [r.run_id for r in ledger] == ["a", "c"]


def test_the_newest_record_of_a_run_counts(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.append(record("a", "failed"))
    ledger.append(record("a"))
    assert ledger.latest()["a"].status == "finished"


def test_a_full_disk_leaves_the_old_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_atomically(path, b"old")
    script = (
        "import resource, signal, sys; from pathlib import Path; from mtlscale.records import write_atomically\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "write_atomically(Path(sys.argv[1]), b'x' * 5000)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True)
    assert done.returncode != 0 and "File too large" in done.stderr
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"", b"{", b"[1]"])
def test_a_damaged_record_is_no_record(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "record.json").write_bytes(content)
    assert read_record(tmp_path) is None


def test_a_written_file_has_the_usual_permissions(tmp_path: Path) -> None:
    plain, written = tmp_path / "plain", tmp_path / "written"
    plain.write_bytes(b"x")
    write_atomically(written, b"x")
    assert written.stat().st_mode == plain.stat().st_mode


def test_a_record_with_numbers_that_are_none_survives_the_ledger(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.append(record("a").model_copy(update={"metrics": {"test": {"t": {"accuracy": float("nan")}}}}))
    value = ledger.latest()["a"].metrics["test"]["t"]["accuracy"]
    assert value != value


def test_records_can_be_read_without_their_epochs(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    odd = '],"seconds":9,"epochs":[{'  # what a careless cut would take for the end or the start
    epochs = [
        Epoch(epoch=n, train_loss={"t": 1.0}, seconds=0.1, traces={"a": [1, 2], "seconds": [[1], [2]]}) for n in (1, 2)
    ]
    phases = [PhaseCost(name="search", phase_id="p", epochs=2, steps=4, seconds=5.0)]
    whole = record("a").model_copy(
        update={
            "epochs": epochs,
            "phases": phases,
            "structure": {"tree": [[0, 0], [0, 1]], "seconds": [1]},
            "seconds": 3.0,
            "error": odd,
            "spec": {"x": [1], "seconds": 2},
            "trial": {"y": [1]},
        }
    )
    ledger.append(whole)
    ledger.append(record("b"))  # without any epoch
    with ledger.path.open("ab") as file:
        file.write(b'{"run_id": "c", "epochs": [')
    assert list(ledger.records()) == [whole, record("b")]
    assert list(ledger.records(epochs=False)) == [whole.model_copy(update={"epochs": []}), record("b")]
    rewritten = json.dumps(json.loads(ledger.path.read_text().splitlines()[0]), indent=None, sort_keys=True)
    ledger.path.write_text(rewritten + "\n")  # by another program: in another order
    assert [found.run_id for found in ledger.records(epochs=False)] == ["a"]


def test_outcomes_are_those_of_whole_records(tmp_path: Path) -> None:
    """Read from both ends of a line, whatever stands between, or from all of it where another program wrote it."""
    ledger = Ledger(tmp_path / "ledger.jsonl")
    odd = '","status":"failed","started":"'
    whole = record("a", "diverged").model_copy(
        update={"method": odd, "error": odd, "finished": "2026", "trial": {"x": {"y": odd}, "started": "z"}}
    )
    for one in (record("a", "failed"), record("b"), whole):
        ledger.append(one)
    end = len(ledger.path.read_bytes().splitlines()[-1])
    plain = ledger.path.read_bytes()
    for cut in range(1, end + 1):  # a crash may cut anywhere
        ledger.path.write_bytes(plain[: -1 - cut])
        ledger.append(record("c").model_copy(update={"finished": "2027"}))
        found = ledger.newest()
        assert {name: one.status for name, one in found.items()} == {
            name: one.status for name, one in ledger.latest().items()
        }
        assert found["a"].status == "failed" and found["c"].when == "2027"
    ledger.path.write_bytes(plain)
    assert [(one.status, one.when) for one in ledger.newest().values()] == [("diverged", "2026"), ("finished", "")]
    assert ledger.read(ledger.newest()["a"]) == whole and ledger.read(ledger.newest()["b"]) == record("b")
    other = json.dumps(json.loads(plain.splitlines()[-1]), sort_keys=True)
    ledger.path.write_text(other + "\n")
    assert [(one.status, one.when) for one in ledger.newest().values()] == [("diverged", "2026")]
