"""A run's model as a folder: what it holds, that nothing else is needed, and what is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from command import mtlscale, refused
from exported_runs import Finished

import mtlscale as package
from mtlscale.config import UserError
from mtlscale.inference import export, load_model
from mtlscale.records import Ledger

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
PLUGINS = Path(__file__).parents[1] / "plugins"
Finish = Callable[..., Finished]
SEARCHED = {"architecture": "searched_sharing", "balancer": "mgda"}


@pytest.fixture
def folder(finished: Finish, tmp_path: Path) -> Path:
    run = finished()
    return export(run.home, run.run_id, tmp_path / "model")


@pytest.mark.parametrize("method", ["stl", "mgda", "uncertainty", "ltb", "linear", "forest", "boosting"])
def test_it_measures_what_the_run_measured(method: str, finished: Finish, tmp_path: Path) -> None:
    run = finished(method)
    model = package.load_model(export(run.home, run.run_id[:9], tmp_path / "model"))
    assert model.evaluate(run.data.folder) == run.record.metrics["test"] == model.metrics
    assert model.spec == run.record.spec and list(model.tasks) == ["a", "b", "c"]
    assert not model.module.training


def test_neither_home_nor_plugin_files_are_needed_and_code_runs_when_it_is_trusted(
    finished: Finish, tmp_path: Path
) -> None:
    own = tmp_path / "two_phases.py"
    shutil.copy(EXAMPLES / own.name, own)
    run = finished(SEARCHED, plugins=f"[{PLUGINS / 'uneven.py'}, {own}]")
    exported = export(run.home, run.run_id, tmp_path / "model")
    shutil.rmtree(run.home.root / "runs")
    shutil.rmtree(run.home.phases)
    own.unlink()
    with pytest.raises(UserError, match=r"code of its own: plugins/two_phases.py \(architecture searched_sharing\)"):
        load_model(exported)
    assert load_model(exported, trust_plugins=True).evaluate(run.data.folder) == run.record.metrics["test"]


def test_without_what_its_search_found_it_is_not_exported(finished: Finish, tmp_path: Path) -> None:
    run = finished(SEARCHED, plugins=f"[{PLUGINS / 'uneven.py'}, {EXAMPLES / 'two_phases.py'}]")
    shutil.rmtree(run.home.phases)
    with pytest.raises(UserError, match=r"what phase .* found is not in"):
        export(run.home, run.run_id, tmp_path / "model")
    assert not (tmp_path / "model").exists() and not list(tmp_path.glob(".model*"))


@pytest.mark.parametrize("name", ["model.safetensors", "model.json", "SHA256SUMS"])
def test_a_changed_byte_is_found_in_any_place(name: str, folder: Path) -> None:
    content = (folder / name).read_bytes()
    places = range(0, len(content), max(1, len(content) // 40))
    for place in places:
        (folder / name).write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        said = "is damaged" if name == "SHA256SUMS" else rf"{name} (is damaged|has format)"
        with pytest.raises(UserError, match=said):
            load_model(folder)
    (folder / name).write_bytes(content)
    load_model(folder)


def test_the_card_may_be_edited(folder: Path) -> None:
    card = folder / "README.md"
    text = card.read_text()
    assert "*to be filled in*" in text and "pip install torch " in text and "uneven" in text
    card.write_text(text.replace("*to be filled in*", "MIT"))
    load_model(folder)


def test_folders_that_are_no_model_of_this_version(folder: Path, tmp_path: Path) -> None:
    text = (folder / "model.json").read_text()
    for number, mend in ((1, "export the run again"), (3, "install a newer mtlscale")):
        (folder / "model.json").write_text(text.replace('"format": 2', f'"format": {number}', 1))
        assert f"has format {number}, this version reads 2; {mend}" in refused("predict", folder, "x.csv")
    (folder / "model.json").write_text(text)
    assert subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, check=False).returncode == 0
    hashes = (folder / "SHA256SUMS").read_text()
    (folder / "SHA256SUMS").write_text(hashes.partition("\n")[2])
    assert "SHA256SUMS is damaged" in refused("predict", folder, "x.csv")
    (folder / "SHA256SUMS").unlink()
    assert "SHA256SUMS is missing; copy the whole folder" in refused("predict", folder, "x.csv")
    (folder / "SHA256SUMS").write_text(hashes)
    (folder / "model.safetensors").unlink()
    assert "model.safetensors is missing" in refused("predict", folder, "x.csv")
    assert "is no exported model" in refused("predict", tmp_path, "x.csv")


def test_what_is_there_is_replaced_by_force_alone(finished: Finish, tmp_path: Path) -> None:
    run, folder = finished(), tmp_path / "model"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    arguments = ("export", run.run_id, folder, "--home", run.home.root)
    assert "is there already" in refused(*arguments)
    assert (folder / "mine.txt").exists()
    assert mtlscale(*arguments, "--force").code == 0
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["README.md", "SHA256SUMS", "model.json", "model.safetensors"]
    assert not list(tmp_path.glob(".model*"))


def test_runs_without_a_model(finished: Finish, tmp_path: Path) -> None:
    run, target = finished(models=False), tmp_path / "model"
    home = ("--home", run.home.root)
    said = refused("export", run.run_id, target, *home)
    assert "kept no model.pt" in said and f"mtlscale rerun {run.run_id} --keep-model" in said
    assert mtlscale("rerun", run.run_id, *home, "--keep-model").code == 0
    assert mtlscale("export", run.run_id, tmp_path / "made anew", *home).code == 0
    assert "no run 0123" in refused("export", "0123", target, *home)
    assert "no run ../x" in refused("export", "../x", target, *home)
    folder = run.home.run(run.run_id)
    record = json.loads((folder / "record.json").read_text())
    (folder / "record.json").write_text(json.dumps(record | {"status": "diverged", "error": "loss is inf"}))
    assert "has diverged (loss is inf)" in refused("export", run.run_id, target, *home)
    (folder / "record.json").unlink()
    assert "has not come to its end" in refused("export", run.run_id, target, *home)
    assert not target.exists()


def test_the_data_are_needed_while_it_is_written(finished: Finish, tmp_path: Path) -> None:
    run = finished(home=tmp_path / "alone")
    shutil.rmtree(run.data.folder)
    assert "are not in" in refused("export", run.run_id, tmp_path / "model", "--home", run.home.root)


def test_loading_draws_nothing(folder: Path) -> None:
    before = torch.get_rng_state()
    load_model(folder)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_best_seed_of_a_method_is_exported_by_the_names_of_both(finished: Finish, tmp_path: Path) -> None:
    best, newest = [finished("equal", seeds=f"[{seed}]") for seed in (0, 1)]
    higher = best.record.higher_is_better
    perfect = {
        task: {metric: 100.0 if higher.get(metric) else 0.0 for metric in values}
        for task, values in best.record.metrics["val"].items()
    }
    ledger = Ledger(best.home.ledger("small"))
    ledger.append(newest.record)
    ledger.append(best.record.model_copy(update={"metrics": {**best.record.metrics, "val": perfect}}))
    folder = tmp_path / "model"
    done = mtlscale("export", "small", folder, "--method", "equal", "--home", best.home.root)
    assert done.code == 0 and str(folder) in done.stdout, done
    card = (folder / "README.md").read_text()
    assert best.run_id in card and newest.run_id not in card
    assert load_model(folder).evaluate(best.data.folder) == best.record.metrics["test"]
