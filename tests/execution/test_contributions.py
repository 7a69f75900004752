"""Contributed results: the example is as it should be, and whatever is changed in it is said with file and line."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from command import mtlscale, refused

from mtlscale.api.submission.validate import check
from mtlscale.api.submission.write import contribute
from mtlscale.config import Experiment, UserError, load_experiment, read_settings
from mtlscale.records import Home, Ledger, RunRecord, is_results, records_of_results
from mtlscale.records.submission_schema import in_lines, records_hash, write_records
from mtlscale.training import train

EXAMPLE = Path(__file__).parents[2] / "results" / "digits_few_labels"


@pytest.fixture
def example(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLE, tmp_path / "example"))


def change_records(folder: Path, change: Callable[[list[dict[str, Any]]], Any], *, hashed: bool = True) -> None:
    """hashed: by somebody who knows that the file has a hash."""
    path = folder / "records.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    change(records)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    if hashed:
        change_results(folder, lambda results: results.update(records=records_hash(path.read_bytes())))


def change_results(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = folder / "results.json"
    results = json.loads(path.read_text())
    change(results)
    path.write_text(json.dumps(results, indent=1))


def change_experiment(folder: Path, **settings: Any) -> None:
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **settings}))


def problems(folder: Path) -> list[str]:
    return [str(problem) for problem in check(folder).problems]


def test_the_example_is_as_it_should_be_and_small() -> None:
    assert problems(EXAMPLE) == [] and is_results(EXAMPLE)
    assert sum(path.stat().st_size for path in EXAMPLE.iterdir()) < 100_000
    records = records_of_results(EXAMPLE)
    assert {record.dataset for record in records} == {"digits 10 %", "digits"} and len(records) == 24
    assert all("/" not in record.hardware and not record.epochs for record in records)


def test_a_run_of_it_ends_as_it_did(tmp_path: Path) -> None:
    run_id = next(r.run_id for r in records_of_results(EXAMPLE) if r.method == "linear" and r.dataset != "digits")
    given = ("validate-results", EXAMPLE, "--run", run_id, "--home", tmp_path)
    done = mtlscale(*given, "--rerun", "1")
    assert done.code == 0 and done.stdout.count(" · seed ") == 2, done
    refused(*given[:3], "nobody", "--home", tmp_path)


def test_a_number_that_was_made_up_passes_until_its_run_is_done_once_more(example: Path, tmp_path: Path) -> None:
    def better(records: list[dict[str, Any]]) -> None:
        for record in records:
            record["metrics"]["test"]["digit3"]["accuracy"] = 99.0

    change_records(example, better)
    from mtlscale.api.submission.validate import stated

    checked = check(example)
    assert all("leaderboard" in str(problem) for problem in checked.problems) and checked.problems
    assert checked.outline is not None
    rows = {d: {m: r.model_dump() for m, r in of.items()} for d, of in stated(checked.outline, checked.records).items()}
    change_results(example, lambda results: results.update(leaderboard=rows))
    assert problems(example) == []
    run_id = next(record.run_id for record in checked.records if record.method == "constant")
    done = mtlscale("validate-results", example, "--run", run_id, "--home", tmp_path / "home")
    assert done.code == 1 and "1 different" in done.stdout and "digit3 accuracy moved most" in done.stdout


def test_a_run_of_another_results_version_is_told_by_it(example: Path) -> None:
    def older(records: list[dict[str, Any]]) -> None:
        for record in records:
            record["spec"]["balancer"]["results_version"] = 99
            record["run_id"] = RunRecord.model_validate(record).as_run().run_id

    change_records(example, older)
    said = "balancer equal had results version 99, now 1: check it with the mtlscale of that time"
    assert any(said in problem for problem in problems(example))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: r[2].pop("metrics"), "records.jsonl:3: metrics: there are none on val"),
        (lambda r: r[2].pop("seed"), "records.jsonl:3: seed: Field required"),
        (lambda r: r[2].update(status="fine"), "records.jsonl:3: status: Input should be 'finished', 'failed' or"),
        (lambda r: r.append(r[0]), f"records.jsonl:25: run {'{first}'} stands in line 1 already"),
        (lambda r: r.pop(4), "records.jsonl: there is no run digits 10 % · equal · seed 1"),
        (lambda r: r[1]["spec"]["training"].update(lr=1.0), "records.jsonl:2: run_id is"),
        (lambda r: r[1].update(seed=7), "records.jsonl:2: seed is 7, but spec says 1"),
        (lambda r: r[1].update(fingerprint="0" * 64), "records.jsonl:2: fingerprint: not that of digits 10 % in"),
        (lambda r: r[0]["metrics"]["test"]["digit3"].update(accuracy=101.0), "accuracy: 101 is not possible"),
        (
            lambda r: r[0]["last"]["val"]["digit5"].update(loss=float("inf")),
            "last.val.digit5.loss: inf is not possible",
        ),
        (lambda r: r[0]["metrics"]["test"]["digit3"].update(f2=1.0), "f2: higher_is_better does not name it"),
        (lambda r: r[0].update(chosen_epoch=None, chosen_epochs={}), "chosen_epoch: no epoch was chosen on validation"),
        (lambda r: r[3].update(chosen_epoch=99), "records.jsonl:4: chosen_epoch: 99 is none of the 20 epochs"),
    ],
)
def test_what_is_wrong_with_a_record_is_said_with_its_line(
    change: Callable[[Any], Any], said: str, example: Path
) -> None:
    first = records_of_results(example)[0].run_id
    change_records(example, change)
    assert any(said.format(first=first) in problem for problem in problems(example)), problems(example)


def test_a_line_that_is_cut_off_is_said_with_its_number(example: Path) -> None:
    path = example / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-400])
    assert any(problem.startswith("records.jsonl:24: Invalid JSON") for problem in problems(example))
    with pytest.raises(UserError, match=r"records\.jsonl:24: Invalid JSON.*validate-results .* says all"):
        records_of_results(example)
    done = mtlscale("validate-results", example)
    assert done.code == 1 and "records.jsonl:24" in done.stdout


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: r.update(by=""), "results.json:4: by: String should have at least 1 character"),
        (lambda r: r.update(extra=1), "extra: Extra inputs are not permitted"),
        (lambda r: r.update(results_version=1), "results_version is 1, of this mtlscale"),
        (lambda r: r.update(records="0"), "records: records.jsonl has another hash"),
        (lambda r: r.update(plugins={"mine.py": "0"}), "plugins: mine.py is not in the folder"),
        (
            lambda r: r["leaderboard"]["digits"]["stl"].update(average=99.0),
            "leaderboard.digits.stl.average: the records",
        ),
        (lambda r: r["leaderboard"]["digits"].pop("stl"), "leaderboard.digits.stl: is not there"),
    ],
)
def test_what_is_wrong_with_what_they_say_of_themselves(change: Callable[[Any], Any], said: str, example: Path) -> None:
    change_results(example, change)
    assert any(said in problem for problem in problems(example)), problems(example)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"seeds": [0, 1, 2, 3]}, "records.jsonl: there is no run digits 10 % · stl · seed 3"),
        ({"seeds": [0, 1]}, "records.jsonl:3: digits 10 % · stl · seed 2: is no run of experiment.yaml"),
        ({"floors": ["constant"]}, "experiment.yaml: floors: linear missing; write `floors: [constant, linear]`"),
        ({"floors": []}, "experiment.yaml: floors: constant and linear missing; write `floors: [constant, linear]`"),
        ({"methods": ["stl", "eqal"]}, "experiment.yaml:"),
        ({"training": {"epochs": 3}}, "records.jsonl:1: digits 10 % · stl · seed 0: experiment.yaml gives it other"),
    ],
)
def test_an_experiment_that_is_not_that_of_the_records(settings: dict[str, Any], said: str, example: Path) -> None:
    change_experiment(example, **settings)
    assert any(problem.startswith(said) for problem in problems(example)), problems(example)


def test_two_folders_with_the_same_data_agree_on_them(example: Path) -> None:
    def other(records: list[dict[str, Any]]) -> None:
        for record in records:
            record["fingerprint"] = "0" * 64

    change_results(example, lambda results: results.update(data=dict.fromkeys(results["data"], "0" * 64)))
    change_records(example, other)
    done = mtlscale("validate-results", EXAMPLE, example)
    assert done.code == 1 and f"data.digits: {EXAMPLE} has the same data set with another fingerprint" in done.stdout


def test_what_is_no_folder_of_results_is_refused(tmp_path: Path) -> None:
    assert "contributed results have experiment.yaml, records.jsonl and results.json" in refused(
        "validate-results", tmp_path
    )


def test_results_are_made_without_paths_users_and_machines(
    tmp_path: Path,
    small: Callable[..., Experiment],
    experiment_file: Callable[..., Path],
    uneven: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "secret-host")
    monkeypatch.setenv("USER", "someone")
    data, home = uneven(), Home(tmp_path / "home")
    path = experiment_file(floors="[constant, linear]", seeds="[0, 1]", resources="{workers: 2}")
    experiment = load_experiment(path)
    settings = read_settings(path)
    with pytest.raises(UserError, match="no runs of small in"):
        contribute(experiment, settings, home, tmp_path / "mine", by="me")
    ledger = Ledger(home.ledger("small"))
    runs = list(experiment.runs({"uneven": data.manifest.fingerprint}))
    records = [train(run, data) for run in runs]
    for record in records[:-1]:
        ledger.append(record)
    with pytest.raises(UserError, match=r"small cannot be contributed: .*there is no run uneven · linear · seed 1"):
        contribute(experiment, settings, home, tmp_path / "mine", by="me")
    assert not (tmp_path / "mine").exists() and not list(tmp_path.glob(".mine*"))
    told = {"hardware": "secret-host CPU of someone", "error": "OSError: /home/someone/data/x.txt is not there"}
    ledger.append(records[-1].model_copy(update=told))
    checked = contribute(experiment, settings, home, tmp_path / "mine", by="me")
    assert not checked.problems and len(checked.records) == len(runs)
    text = "".join(file.read_text() for file in (tmp_path / "mine").glob("*.*"))
    assert not any(word in text for word in ("secret-host", "someone", "resources", str(tmp_path), "/home/"))
    assert '"x.txt is not there' in text.replace("OSError: ", '"')
    assert (tmp_path / "mine" / "uneven.py").is_file() and checked.provenance is not None
    assert set(checked.provenance.plugins) == {"uneven.py"}
    with pytest.raises(UserError, match="is there already and not empty"):
        contribute(experiment, settings, home, tmp_path / "mine", by="me")
    (tmp_path / "mine" / "uneven.py").write_text("# other\n" + (tmp_path / "mine" / "uneven.py").read_text())
    assert any(problem.startswith("uneven.py: has another hash") for problem in problems(tmp_path / "mine"))


def test_records_are_read_back_as_they_were(tmp_path: Path) -> None:
    records: list[RunRecord] = records_of_results(EXAMPLE)
    assert in_lines(records) == (EXAMPLE / "records.jsonl").read_bytes()


def test_many_records_are_packed_and_damage_is_said(example: Path, tmp_path: Path) -> None:
    records = records_of_results(example)
    content = (example / "records.jsonl").read_bytes()
    (example / "records.jsonl").unlink()
    (example / "records.jsonl.gz").write_bytes(gzip.compress(content))
    assert records_of_results(example) == records and problems(example) == [] and is_results(example)

    write_records(tmp_path, b" " * (1 << 20))
    assert (tmp_path / "records.jsonl").is_file()
    write_records(tmp_path / "many", b" " * ((1 << 20) + 1))
    assert not (tmp_path / "many" / "records.jsonl").exists() and (tmp_path / "many" / "records.jsonl.gz").is_file()

    (example / "records.jsonl.gz").write_bytes(gzip.compress(content)[:-100])
    assert "records.jsonl.gz cannot be unpacked" in refused("validate-results", example)
    (example / "records.jsonl.gz").write_bytes(gzip.compress(b"\n" * ((128 << 20) + 1)))
    assert "is larger than 128 MiB" in refused("validate-results", example)
