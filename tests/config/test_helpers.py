"""Modules beside a plugin that it imports: they are found, count for its hash, and go where it goes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command import mtlscale

from mtlscale.config import UserError, load_experiment, load_plugin
from mtlscale.config.registry import components, import_order
from mtlscale.config.registry.helpers import helper_files, plugin_hash
from mtlscale.config.registry.source_code import code_hash
from mtlscale.execution.cluster.job_bundle import pack
from mtlscale.execution.workers.worker import sources

PLUGIN = """
from weighing import factor
from mtlscale.balancing import Balancer

class Halved(Balancer):
    \"\"\"Weights of a helper.\"\"\"
    name = "{name}"
    needs = "losses"
    def __call__(self, losses, gramian, state):
        from tools.more import same
        return same(factor() * losses.new_ones(losses.shape)), state
"""
UNEVEN = Path(__file__).parents[1] / "plugins" / "uneven.py"
HELPERS = {
    "weighing.py": "import deeper\ndef factor():\n    return deeper.HALF\n",
    "deeper.py": "HALF = 0.5\n",
    "tools/__init__.py": "",
    "tools/more.py": "from . import parts\ndef same(x):\n    return parts.same(x)\n",
    "tools/parts.py": "def same(x):\n    return x\n",
    "unused.py": "raise RuntimeError('nobody imports this')\n",
}


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plugin with helpers; what it leaves in this process goes afterwards."""
    monkeypatch.setattr(import_order, "HELPERS", {})
    folder = tmp_path / "mine"
    for name, text in HELPERS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "halved.py").write_text(PLUGIN.format(name="halved"))
    before = set(sys.modules)
    yield folder / "halved.py"
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("weighing", "deeper", "tools"):
            del sys.modules[name]


def run_ids(path: Path) -> list[str]:
    experiment = load_experiment(path)
    return [run.run_id for run in experiment.runs(dict.fromkeys(experiment.data(), "f"))]


def test_what_a_plugin_imports_is_found_whenever_it_does(plugin: Path) -> None:
    load_plugin(plugin)
    import torch

    balancer = components.build("balancers", "halved")
    assert balancer(torch.ones(2), None, {})[0].tolist() == [0.5, 0.5]
    assert list(helper_files(plugin, plugin.read_bytes())) == [
        "deeper.py", "tools/__init__.py", "tools/more.py", "tools/parts.py", "weighing.py"
    ]  # fmt: skip


@pytest.mark.parametrize("name", sorted(set(HELPERS) - {"unused.py", "tools/__init__.py"}))
def test_the_code_of_every_helper_is_in_the_run_id(
    name: str, plugin: Path, experiment_file: Callable[..., Path]
) -> None:
    path = experiment_file(methods="[halved]", plugins=f"[{plugin.parent.parent}/mine/halved.py, {UNEVEN}]")
    before, helper = run_ids(path), plugin.parent / name
    helper.write_text(f"# a comment\n{helper.read_text()}")
    (plugin.parent / "unused.py").write_text("other = 1")
    assert run_ids(path) == before
    helper.write_text(
        helper.read_text()
        .replace("0.5", "0.25")
        .replace("factor():\n", "factor():\n    2\n")
        .replace("(x):\n", "(x):\n    x = 1 * x\n")
    )
    assert set(run_ids(path)).isdisjoint(before)


@pytest.mark.parametrize(
    "name, text",
    [("deeper.py", "HALF = {}\n"), ("tools/parts.py", "def same(x):\n    return {} * 2 * x\n"), ("halved.py", None)],
)
def test_a_file_that_changes_within_a_second_and_keeps_its_length_is_read_anew(
    name: str, text: str | None, plugin: Path
) -> None:
    import torch

    file = plugin.parent / name
    text = text or PLUGIN.format(name="halved").replace("factor()", "{} * 2 * factor()")
    for factor in (0.5, 0.7):
        file.write_text(text.format(factor))
        os.utime(file, (1e9, 1e9))
        load_plugin(plugin)
        [weight] = components.build("balancers", "halved")(torch.ones(1), None, {})[0].tolist()
        assert weight == pytest.approx(factor if name == "deeper.py" else factor * 2 * 0.5)


def test_a_plugin_without_helpers_keeps_its_hash(tmp_path: Path) -> None:
    plugin = tmp_path / "alone.py"
    plugin.write_text("import json, torch\nfrom pipelines import Pipeline\n")
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "__init__.py").write_text("")
    (tmp_path / "json").mkdir()  # with data, say
    assert helper_files(plugin, plugin.read_bytes()) == {}
    assert plugin_hash(plugin, plugin.read_bytes()) == code_hash(plugin.read_bytes())


def test_jobs_and_workers_have_the_helpers(plugin: Path, experiment_file: Callable[..., Path], tmp_path: Path) -> None:
    path = experiment_file(methods="[halved]", plugins=f"[{plugin}, {UNEVEN}]")
    package = pack(str(path))
    package.write(tmp_path / "job")
    expected = run_ids(path)
    assert run_ids(tmp_path / "job" / package.file) == expected
    assert not list((tmp_path / "job").rglob("unused.py"))

    code = (
        "import sys, json, torch\nfrom mtlscale.execution.workers.worker import setup\n"
        "from mtlscale.config import build\nsetup(1, json.loads(sys.argv[1]))\n"
        "print(build('balancers', 'halved')(torch.ones(1), None, {})[0].item())"
    )
    text = json.dumps(sources([str(plugin)]))
    plugin.parent.rename(tmp_path / "gone")  # a machine without the files
    root = import_order.FOLDER.parent
    done = subprocess.run(
        [sys.executable, "-c", code, text],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
        timeout=200,
    )
    assert done.stdout.strip() == "0.5", done.stderr


def test_mistakes_are_one_line_each(plugin: Path, tmp_path: Path, experiment_file: Callable[..., Path]) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "weighing.py").write_text("def factor():\n    return 1\n")
    (other / "second.py").write_text(PLUGIN.format(name="second").replace("from tools.more import same", "same = abs"))
    path = experiment_file(methods="[halved, second]", plugins=f"[{plugin}, {other / 'second.py'}, {UNEVEN}]")
    refused = mtlscale("run", path, "--dry-run")
    assert refused.code == 2
    assert refused.stderr.endswith(
        f"plugins import {plugin.parent / 'weighing.py'} and {other / 'weighing.py'}, which have the same name; "
        "rename one\n"
    )

    (other / "torch.py").write_text("")
    (other / "third.py").write_text("import torch")
    with pytest.raises(UserError, match=r"third.py imports torch, which is an installed module, and .*torch.py beside"):
        load_plugin(other / "third.py")
    (other / "broken.py").write_text("def")
    (other / "fourth.py").write_text("import broken")
    with pytest.raises(UserError, match=r"fourth.py imports .*broken.py, which is no Python"):
        load_plugin(other / "fourth.py")
    (other / "fifth.py").write_text("import nowhere_at_all")
    with pytest.raises(UserError, match="No module named 'nowhere_at_all'"):
        load_plugin(other / "fifth.py")
