"""Records and ledgers survive crashes: whole or not there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mtlscale.records import Counts, Epoch, EpochFile, Ledger, RunRecord, read_epochs, read_record, write_atomically


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


def test_how_runs_have_ended_is_what_their_records_say(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    for run_id, status in (("a", "failed"), ("b", "finished"), ("a", "diverged")):
        ledger.append(record(run_id, status).model_copy(update={"finished": f"2026-01-0{len(status) - 5}"}))
    with ledger.path.open("ab") as file:
        file.write(b'{"run_id": "c", "status": "fini')
    rows = ledger.latest()
    assert Counts.of(["a", "b", "c"], ledger.endings()) == Counts.of(["a", "b", "c"], rows)
    assert Counts.of(["a", "b", "c"], rows) == Counts(3, 1, 0, 1, "2026-01-03")


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


def test_rows_have_no_epochs_and_any_cut_leaves_the_others(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    odd = '","status":"failed","started":"'
    epochs = [Epoch(epoch=number, train_loss={"t": 1.0}, seconds=0.1) for number in (1, 2)]
    whole = record("a", "diverged").model_copy(update={"method": odd, "error": odd, "epochs": epochs})
    for one in (record("a", "failed"), record("b"), whole):
        ledger.append(one)
    row = whole.model_copy(update={"epochs": []})
    assert list(ledger) == [record("a", "failed"), record("b"), row]
    assert ledger.latest() == {"a": row, "b": record("b")}

    plain = ledger.path.read_bytes()
    for cut in range(1, len(plain.splitlines()[-1]) + 1, 7):  # a crash may cut anywhere
        ledger.path.write_bytes(plain[: -1 - cut])
        ledger.append(record("c"))
        assert {name: one.status for name, one in ledger.latest().items()} == dict.fromkeys("bc", "finished") | {
            "a": "failed"
        }

    ledger.path.write_text(json.dumps(json.loads(plain.splitlines()[-1]), sort_keys=True) + "\n")  # by another program
    assert ledger.latest() == {"a": row}


def test_epochs_are_written_as_they_end_and_a_cut_loses_the_last_alone(tmp_path: Path) -> None:
    epochs = [Epoch(epoch=number, train_loss={"t": float("nan")}, seconds=0.1) for number in range(1, 5)]
    log = EpochFile(tmp_path)
    for number in (1, 2, 3):
        log.take(epochs[:number])
        assert [epoch.epoch for epoch in read_epochs(tmp_path)] == list(range(1, number + 1))
    log.take(epochs[:3])  # nothing new
    assert len(read_epochs(tmp_path)) == 3

    file = tmp_path / "epochs.jsonl"
    file.write_bytes(file.read_bytes()[:-20])
    assert [epoch.epoch for epoch in read_epochs(tmp_path)] == [1, 2]
    EpochFile(tmp_path).take(epochs[:2])  # a resumed run: what its checkpoint has, and no line that was cut off
    assert [epoch.epoch for epoch in read_epochs(tmp_path)] == [1, 2]
    assert read_epochs(tmp_path / "none") == []
