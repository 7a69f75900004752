"""One run's story, and its repetition."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from command import mtlscale, refused

from mtlscale.cli.output.run_summary import sparkline, summary_parts
from mtlscale.config import ResourceSpec, load_experiment
from mtlscale.config.registry import components
from mtlscale.execution.planning.noted_plugins import noted_plugins
from mtlscale.execution.planning.status import PLAN, write_plan
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.execution.workers.jobs import Job, Options
from mtlscale.execution.workers.trial import execute
from mtlscale.records import Home, Ledger, RunRecord, find_run, read_record
from mtlscale.report import Results
from mtlscale.tracking.link import link

TWO_PHASES = Path(__file__).parents[2] / "docs" / "examples" / "two_phases.py"
UNEVEN = Path(__file__).parents[1] / "plugins" / "uneven.py"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with two runs that have ended, one of which searched first, and one that failed."""
    folder = tmp_path_factory.mktemp("one")
    home = Home(folder / "home")
    plugin = folder / "two_phases.py"
    shutil.copyfile(TWO_PHASES, plugin)
    searched = "{label: searched, architecture: {name: searched_sharing, search_epochs: 2}}"
    (folder / "small.yaml").write_text(
        f"plugins: [{UNEVEN}, {plugin}]\ndatasets: [uneven]\nmethods: [mgda, {searched}]\nfloors: []\n"
        "model: {encoder: {name: mlp, hidden: [8]}, dropout: 0.2}\ntraining: {epochs: 4, batch_size: 16, lr: 1e-2}\n"
    )
    experiment = load_experiment(folder / "small.yaml")
    data = prepare("uneven", {}, None, home.root)
    fingerprint = json.loads((data / "manifest.json").read_text())["fingerprint"]
    options = Options(ResourceSpec(), phases=home.phases)
    for run in experiment.runs({"uneven": fingerprint}):
        *_, ended = execute(Job(run, data, home.run(run.run_id)), options)
        assert ended.record.status == "finished", ended.record.error
        Ledger(home.ledger("small")).append(ended.record)
    lost = ended.record.model_copy(
        update={"run_id": "f" * 16, "status": "failed", "error": "no luck", "metrics": {}, "epochs": []}
    )
    Ledger(home.ledger("small")).append(lost)
    home.run(lost.run_id).mkdir()
    (home.run(lost.run_id) / "error.txt").write_text("Traceback")
    return home


def test_a_run_of_a_plugin_asks_for_its_file(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    record = records(home)["searched"]
    (home.experiment("small") / PLAN).unlink(missing_ok=True)
    monkeypatch.delitem(components._PLUGINS["architectures"], "searched_sharing")  # as in a new process
    message = refused("rerun", record.run_id, "--home", home.root)
    assert "made with the architecture searched_sharing of a plugin" in message and "--plugin FILE" in message
    assert not (home.root / "reruns").exists()


def test_a_run_finds_the_plugins_of_its_experiment_while_their_code_is_the_same(
    home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Results, "write_report", lambda results: {})  # seconds of charts
    started = mtlscale("run", home.root.parent / "small.yaml", "--home", home.root)  # nothing is left to train
    assert started.code == 0, started
    run = find_run(home, records(home)["searched"].run_id)
    plugin = home.root.parent / "two_phases.py"
    assert noted_plugins(home, run) == [UNEVEN, plugin]

    monkeypatch.delitem(components._PLUGINS["architectures"], "searched_sharing")  # as in a new process
    plugin.write_text(f"# a comment\n{plugin.read_text()}")
    done = mtlscale("rerun", run.run_id, "--home", home.root)
    assert done.code == 0 and "the same to the last digit" in done.stdout, done

    monkeypatch.delitem(components._PLUGINS["architectures"], "searched_sharing")
    mtlscale("export", run.run_id, tmp_path / "model", "--home", home.root)
    assert "searched_sharing" in components.names("architectures")

    write_plan(home, "small", [], [UNEVEN, plugin])  # of other settings: the hashes in the spec decide
    assert noted_plugins(home, run) == [plugin]
    try:
        plugin.write_text(f"{TWO_PHASES.read_text()}\nEDITED = True\n")
        monkeypatch.delitem(components._PLUGINS["architectures"], "searched_sharing")
        assert "name it: --plugin FILE" in refused("rerun", run.run_id, "--home", home.root)
    finally:
        shutil.copyfile(TWO_PHASES, plugin)


def records(home: Home) -> dict[str, RunRecord]:
    return {record.method: record for record in Ledger(home.ledger("small")) if record.status == "finished"}


def test_a_story(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    record = records(home)["searched"]
    done = mtlscale("show", record.run_id[:9], "--home", home.root)
    assert done.code == 0, done
    told = " ".join(done.stdout.split())
    for text in (
        f"run {record.run_id}: uneven · searched · seed 0, finished",
        "of small",
        "epochs=4, batch_size=16, lr=0.01",
        "mlp hidden=[8]",
        "dropout 0.2",
        f"search: {record.phases[0].epochs} epochs".replace("search:", "phase search:"),
        f"{record.parameters:,} parameters",
        "accuracy",
        f"{record.metrics['test']['a']['accuracy']:.4g}",
        "record.json",
    ):
        assert text in told, text
    assert any(bar in told for bar in "▁█")
    assert told.count("(chosen)") == (record.chosen_epoch is not None)


def test_the_same_for_programs(home: Home) -> None:
    record = records(home)["mgda"]
    found = json.loads(mtlscale("show", record.run_id, "--home", home.root, "--json").stdout)
    assert found["metrics"] == record.metrics and found["experiments"] == ["small"]
    assert found["mlflow"] == link(home.tracking_uri, record.run_id)
    assert "record.json" in found["files"]
    assert yaml.safe_load(mtlscale("show", record.run_id, "--home", home.root, "--spec").stdout) == record.spec


def test_runs_that_failed_or_are_not_there(home: Home, tmp_path: Path) -> None:
    told = mtlscale("show", "ffff", "--home", home.root).stdout
    assert "failed" in told and "cause: no luck" in told and f"traceback: {home.run('f' * 16)}/error.txt" in told
    record = records(home)["mgda"]
    near = record.run_id[:5] + "x" + record.run_id[6:]
    said = refused("show", near, "--home", home.root)
    assert said.startswith(f"no run {near} in") and "lists their ids" in said
    assert "no runs in" in refused("show", "abc", "--home", tmp_path)
    assert "3 begin so" in refused("show", "", "--home", home.root)
    assert "failed (no luck)" in refused("rerun", "ffff", "--home", home.root)
    (home.run("e" * 16)).mkdir()
    assert "not ended yet" in mtlscale("show", "eeee", "--home", home.root).stdout
    assert "has not come to an end" in refused("rerun", "eeee", "--home", home.root)
    (home.run("e" * 16)).rmdir()


@pytest.mark.parametrize("method", ["mgda", "searched"])
def test_a_run_again_is_the_same_to_the_last_digit(home: Home, method: str) -> None:
    record = records(home)[method]
    before = (home.run(record.run_id) / "record.json").read_bytes()
    done = mtlscale("rerun", record.run_id, "--home", home.root)
    assert done.code == 0 and "the same to the last digit" in done.stdout, done
    assert (home.run(record.run_id) / "record.json").read_bytes() == before
    assert not list((home.root / "reruns").iterdir())


@pytest.mark.parametrize(("moved", "outcome"), [(1e-9, "the same within what seeds differ by"), (2.0, "different")])
def test_a_run_that_is_not_the_same_says_where(home: Home, moved: float, outcome: str) -> None:
    record = records(home)["mgda"]
    folder, kept = home.run(record.run_id), (home.run(record.run_id) / "record.json").read_bytes()
    metrics = {split: {task: dict(found) for task, found in tasks.items()} for split, tasks in record.metrics.items()}
    metrics["test"]["b"]["accuracy"] += moved
    versions = {**record.versions, "torch": "1.0"}
    changed = record.model_copy(update={"metrics": metrics, "versions": versions})
    (folder / "record.json").write_text(changed.model_dump_json())
    try:
        done = mtlscale("rerun", record.run_id, "--home", home.root)
        found = json.loads(mtlscale("rerun", record.run_id, "--home", home.root, "--json").stdout)
    finally:
        (folder / "record.json").write_bytes(kept)
    assert done.code == (outcome == "different") and f"{outcome}: test b accuracy moved most" in done.stdout, done
    assert "1 of" in done.stdout and "torch: 1.0, now" in done.stdout
    assert [(one["place"], one["task"], one["metric"]) for one in found["differences"]] == [("test", "b", "accuracy")]
    assert not found["same"] and found["outcome"] == outcome and read_record(Path(found["folder"])) is not None


def test_a_run_whose_data_are_gone(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MTLSCALE_DATA", raising=False)
    record = records(home)["mgda"]
    other = record.model_copy(update={"run_id": "d" * 16, "fingerprint": "0" * 64})
    Ledger(home.ledger("small")).append(other)
    told = refused("rerun", "dddd", "--home", home.root)
    assert told.startswith(f"the data of run {'d' * 16} are gone") and "--source" in told
    spec = {**record.spec, "dataset": {"name": "celeba"}}
    Ledger(home.ledger("small")).append(other.model_copy(update={"run_id": "c" * 16, "spec": spec}))
    assert "are gone: celeba needs its files: pass --source DIR" in refused("rerun", "cccccc", "--home", home.root)


def test_a_link_into_a_database_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("no database")
    assert link(f"sqlite:///{tmp_path / 'mlflow.db'}", "abc") is None
    assert link("http://127.0.0.1:5000", "abc") is None


def test_differences_in_a_spec(home: Home, tmp_path: Path) -> None:
    from mtlscale.config import differences

    found = differences(records(home)["mgda"].spec)
    assert found["balancer"] == "mgda" and found["training.lr"] == 1e-2 and found["encoder.hidden"] == [8]
    assert "training.momentum" not in found and "architecture.name" not in found


def test_what_was_learned_and_counted_is_told_in_a_line_each(home: Home) -> None:
    learned = {"tree": [[0, 1], [2]], "long": list(range(200))}
    record = records(home)["mgda"].model_copy(update={"structure": learned, "counters": {"clamps": 12, "none": 0}})
    lines = [part for part in summary_parts(record) if isinstance(part, str)]
    assert "counted: clamps 12" in lines
    [line] = [line for line in lines if line.startswith("structure: ")]
    assert '"tree": [[0, 1], [2]]' in line and line.endswith("--json has all)") and len(line) < 250


def test_a_sparkline() -> None:
    assert sparkline([0, 7, float("nan"), 14]) == "▁▄·█" or sparkline([0, 7, float("nan"), 14]) == "▁▅·█"
    assert sparkline([1.0, 1.0]) == "▁▁" and sparkline([]) == ""
    many = sparkline([float(i) for i in range(1000)])
    assert len(many) == 60 and many[0] == "▁" and many[-1] == "█"
    assert sparkline([0.0] * 999 + [1.0])[-1] == "█"  # the last value is among those shown
