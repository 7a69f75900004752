"""Settings that name files: where they are looked for, what counts in a run id, what travels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mtlscale.config import Run, UserError, load_experiment, named_files
from mtlscale.execution.cluster.job_bundle import pack

MODEL = "{encoder: {name: resnet18, width: 2, weights: backbone.pth}}"
FINGERPRINTS = {"celeba": "f"}


@pytest.fixture
def write(experiment_file: Callable[..., Path]) -> Callable[..., Path]:
    def of(model: str = MODEL, **lines: str) -> Path:
        return experiment_file(datasets="[celeba]", methods="[stl, mgda]", model=model, **lines)

    return of


def first(path: Path, *overrides: str) -> Run:
    return next(load_experiment(path, overrides).runs(FINGERPRINTS))


def test_a_file_is_known_by_its_content_alone(write: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "backbone.pth").write_bytes(b"one")
    run = first(write())
    kept = run.spec["encoder"]["weights"]
    assert kept["file"] == str(tmp_path / "backbone.pth") and len(kept["sha256"]) == 64
    other = tmp_path / "elsewhere" / "other name.pth"
    other.parent.mkdir()
    other.write_bytes(b"one")
    assert first(write(), f"model.encoder.weights={other}").run_id == run.run_id
    assert first(write(), "model.encoder.weights=null").run_id != run.run_id
    other.write_bytes(b"two")
    assert first(write(), f"model.encoder.weights={other}").run_id != run.run_id
    # What a record keeps makes the same run again, as a worker does.
    again = Run.model_validate(run.model_dump())
    assert again.run_id == run.run_id and again.parts.encoder.weights == kept
    assert again.tuned({"model.encoder.width": 4}).spec["encoder"]["weights"] == kept


def test_it_lies_beside_the_experiment_or_here(
    write: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    with pytest.raises(UserError, match=r"model\.encoder\.weights: backbone\.pth does not exist beside"):
        load_experiment(write())
    (here / "backbone.pth").write_bytes(b"here")
    assert first(write()).spec["encoder"]["weights"]["file"] == str(here / "backbone.pth")
    (tmp_path / "backbone.pth").write_bytes(b"beside")
    assert first(write()).spec["encoder"]["weights"]["file"] == str(tmp_path / "backbone.pth")


def test_methods_and_data_sets_may_name_their_own(write: Callable[..., Path], tmp_path: Path) -> None:
    for name in ("a.pth", "b.pth"):
        (tmp_path / name).write_text(name)
    methods = "[stl, {name: mgda, model: {encoder: {name: resnet18, weights: b.pth}}}]"
    path = write("{encoder: {name: resnet18, weights: a.pth}}").read_text().replace("[stl, mgda]", methods)
    file = tmp_path / "two.yaml"
    file.write_text(path)
    named = {
        run.method: Path(run.spec["encoder"]["weights"]["file"]).name
        for run in load_experiment(file).runs(FINGERPRINTS)
    }
    assert named["stl"] == "a.pth" and named["mgda"] == "b.pth"


def test_an_architecture_may_name_one(experiment_file: Callable[..., Path], tmp_path: Path) -> None:
    """Alone as the method, or beside a balancer."""
    (tmp_path / "search.pt").write_bytes(b"one")
    methods = "[{name: conal, found: search.pt}, {architecture: {name: conal, found: search.pt}, balancer: mgda}]"
    for run in load_experiment(experiment_file(datasets="[celeba]", methods=methods)).runs(FINGERPRINTS):
        assert run.spec["architecture"]["found"]["file"] == str(tmp_path / "search.pt"), run.method
    (tmp_path / "search.pt").unlink()
    with pytest.raises(UserError, match=r"methods\.0\.found: search\.pt does not exist beside"):
        load_experiment(experiment_file(datasets="[celeba]", methods=methods))
    (tmp_path / "search.pt").mkdir()
    with pytest.raises(UserError, match=r"methods\.0\.found: search\.pt is a folder; name a file or null"):
        load_experiment(experiment_file(datasets="[celeba]", methods=methods))


def test_a_file_that_changes_after_planning_is_not_used(write: Callable[..., Path], tmp_path: Path) -> None:
    path = tmp_path / "backbone.pth"
    path.write_bytes(b"planned")
    value = first(write()).spec["encoder"]["weights"]
    assert named_files.locate(value) == path
    path.write_bytes(b"something else")
    with pytest.raises(UserError, match="has changed since the run was planned"):
        named_files.locate(value)
    path.unlink()
    with pytest.raises(UserError, match="has to lie at the same path on every node"):
        named_files.locate(value)


def test_a_submitted_job_takes_it_along(
    write: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "backbone.pth").write_bytes(b"one")
    run = first(write())
    package = pack(str(write()))
    there = tmp_path / "there"
    package.write(there)
    assert (there / "files" / "0" / "backbone.pth").read_bytes() == b"one"
    monkeypatch.chdir(there)
    driver = first(Path(package.file))
    assert driver.run_id == run.run_id
    # On another node the job's folder has another name.
    value = {**driver.spec["encoder"]["weights"], "file": "/tmp/not there/files/0/backbone.pth"}
    assert named_files.locate(value) == there / "files" / "0" / "backbone.pth"


def test_a_folder_is_known_by_the_files_of_its_model(
    write: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    model = "{encoder: {name: pretrained, checkpoint: model}}"
    for name, text, problem in (
        ("config.json", '{"model_type": "bert"}', "has no config.json"),
        ("pytorch_model.bin", "pickled", "has no weights"),
        ("model.safetensors", "one", r"only pickled weights \(pytorch_model.bin\)"),
        ("tokenizer.json", "{}", "has no tokenizer"),
    ):
        with pytest.raises(UserError, match=rf"model\.encoder\.checkpoint: model.* {problem}"):
            load_experiment(write(model))
        (folder / name).write_text(text)
    run = first(write(model))
    (folder / "README.md").write_text("said")
    assert first(write(model)).run_id == run.run_id
    package = pack(str(write(model)))
    package.write(tmp_path / "there")
    inside = tmp_path / "there" / "files" / "0" / "model"
    assert sorted(path.name for path in inside.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]
    monkeypatch.chdir(tmp_path / "there")
    assert first(Path(package.file)).run_id == run.run_id
    value = {**run.spec["encoder"]["checkpoint"], "file": "/tmp/not there/files/0/model"}
    assert named_files.locate(value) == inside
    (folder / "model.safetensors").write_text("two")
    assert first(write(model)).run_id != run.run_id
    with pytest.raises(UserError, match="has changed since the run was planned"):
        named_files.locate(run.spec["encoder"]["checkpoint"])
    with pytest.raises(UserError, match=r"checkpoint: model/config\.json is a file; name a folder or null"):
        load_experiment(write(model.replace("model}}", "model/config.json}}")))
