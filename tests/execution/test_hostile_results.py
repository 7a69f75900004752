"""Results that somebody contributed: whatever is in the folder, nothing of it runs, and one line says what is wrong."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from command import mtlscale, refused

from mtlscale.api.submission import sandbox
from mtlscale.api.submission.validate import check
from mtlscale.records.submission_schema import MOST_LINES, records_hash

EXAMPLE = Path(__file__).parents[2] / "results" / "digits_few_labels"
EVIL = """
import pathlib
pathlib.Path({canary!r}).write_text("ran")
from mtlscale.balancing import Balancer
from mtlscale.metrics import Metric


class Evil(Balancer):
    "An evil one."
    name = "evil"


class Hidden(Metric):
    "A hidden one."
    name = "hidden"
    higher_is_better = True
    losses = ("cross_entropy",)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLE, tmp_path / "example"))


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "canary"


def settle(folder: Path) -> None:
    """Hash the files again, as somebody would who knows that they are hashed."""
    path = folder / "results.json"
    results = json.loads(path.read_text())
    results["records"] = records_hash((folder / "records.jsonl").read_bytes())
    results["plugins"] = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.glob("*.py")}
    path.write_text(json.dumps(results, indent=1))


def add_settings(folder: Path, **settings: Any) -> None:
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **settings}))


def change_record(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = folder / "records.jsonl"
    first, *others = path.read_text().splitlines()
    record = json.loads(first)
    change(record)
    path.write_text("\n".join([json.dumps(record), *others]) + "\n")


def plugin_at_import(folder: Path, canary: Path) -> None:
    (folder / "evil.py").write_text(EVIL.format(canary=str(canary)))
    add_settings(folder, plugins=["evil.py"], methods=["stl", "equal", "evil"])


def plugin_in_a_metric(folder: Path, canary: Path) -> None:
    (folder / "evil.py").write_text(EVIL.format(canary=str(canary)))
    datasets = [{"name": "digits", "metrics": ["accuracy", "hidden"]}, {"name": "digits", "train": 0.1}]
    add_settings(folder, plugins=["evil.py"], datasets=datasets)


def yaml_tag(folder: Path, canary: Path) -> None:
    path = folder / "experiment.yaml"
    path.write_text(path.read_text() + f'note: !!python/object/apply:os.system ["touch {canary}"]\n')


def yaml_bomb(folder: Path, canary: Path) -> None:
    del canary
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 10))
    (folder / "experiment.yaml").write_text("l0: &l0 [x, x, x, x, x, x, x, x, x]\n" + levels)


def link_outside(folder: Path, canary: Path) -> None:
    canary.with_name("secret.yaml").write_text("password: 1\n")
    (folder / "experiment.yaml").unlink()
    (folder / "experiment.yaml").symlink_to(canary.with_name("secret.yaml"))


def many_lines(folder: Path, canary: Path) -> None:
    del canary
    (folder / "records.jsonl").write_bytes(b"{}\n" * 1_000_000)


def numbers_as_text(folder: Path, canary: Path) -> None:
    del canary
    change_record(folder, lambda record: record["metrics"]["test"]["digit3"].update(accuracy="99.5"))


def not_a_number(folder: Path, canary: Path) -> None:
    del canary
    change_record(folder, lambda record: record["metrics"]["test"]["digit3"].update(accuracy=float("nan")))


def huge_integer(folder: Path, canary: Path) -> None:
    del canary
    change_record(folder, lambda record: record.update(steps=10**4000))


def path_upwards(folder: Path, canary: Path) -> None:
    (folder.parent / "evil.py").write_text(EVIL.format(canary=str(canary)))
    add_settings(folder, plugins=["../evil.py"])


def plugin_that_is_not_there(folder: Path, canary: Path) -> None:
    del canary
    add_settings(folder, plugins=["missing.py"], methods=["stl", "equal", "mine"])


def component_of_no_plugin(folder: Path, canary: Path) -> None:
    del canary
    add_settings(folder, methods=["stl", "equal", "of_no_plugin"])


def endless_pipe(folder: Path, canary: Path) -> None:
    del canary
    (folder / "records.jsonl").unlink()
    os.mkfifo(folder / "records.jsonl")


def balancer_that_is_a_text(folder: Path, canary: Path) -> None:
    del canary
    change_record(folder, lambda record: (record.update(run_id="f" * 16), record["spec"].update(balancer="equal")))


HOSTILE = {
    plugin_at_import: "records.jsonl: there is no run digits 10 % · evil · seed 0",
    plugin_in_a_metric: "metrics: there is no hidden, which experiment.yaml asks for",
    yaml_tag: "experiment.yaml:32: not valid YAML: could not determine a constructor for the tag",
    yaml_bomb: "experiment.yaml: holds more than 100,000 values",
    link_outside: "experiment.yaml is a link; put the file itself into the folder",
    many_lines: f"records.jsonl has 1,000,000 lines, more than {MOST_LINES:,}",
    numbers_as_text: "records.jsonl:1: metrics.test.digit3.accuracy: Input should be a valid number",
    not_a_number: "records.jsonl:1: metrics.test.digit3.accuracy: nan is not possible",
    huge_integer: "records.jsonl:1: steps: ",
    path_upwards: "experiment.yaml: plugins: '../evil.py' is no name of a file beside it",
    plugin_that_is_not_there: "experiment.yaml: plugins: missing.py does not lie beside it",
    component_of_no_plugin: "experiment.yaml:",
    endless_pipe: "records.jsonl is no file; remove it from the folder",
    balancer_that_is_a_text: "records.jsonl:1: digits 10 % · stl · seed 0: experiment.yaml gives it other settings",
}


@pytest.mark.parametrize("attack", HOSTILE, ids=lambda attack: attack.__name__)
def test_hostile_results_run_nothing_and_get_one_line(
    attack: Callable[[Path, Path], None], folder: Path, canary: Path
) -> None:
    attack(folder, canary)
    if not (folder / "records.jsonl").is_fifo():
        settle(folder)
    before, peak = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    done = mtlscale("validate-results", folder)
    said = (done.stdout + done.stderr).strip()
    assert done.code in (1, 2) and HOSTILE[attack] in said, said
    assert "Traceback" not in said and all(str(folder) in line for line in said.splitlines()), said
    shown = mtlscale("leaderboard", folder)
    assert "Traceback" not in shown.stderr and len(shown.stderr.splitlines()) <= 1
    assert not canary.exists() and "mtlscale_plugin_evil" not in sys.modules
    assert time.process_time() - before < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 300_000  # kB


def test_a_hostile_folder_does_not_hide_the_others(folder: Path, canary: Path) -> None:
    link_outside(folder, canary)
    done = mtlscale("validate-results", folder, EXAMPLE)
    assert done.code == 1 and "is a link" in done.stdout and f"{EXAMPLE}: 2 data sets" in done.stdout


def test_many_problems_are_counted_and_control_characters_are_not_printed(folder: Path) -> None:
    path = folder / "records.jsonl"
    path.write_text("".join(json.dumps({"run_id": "\x1b[2J" * 500}) + "\n" for _ in range(200)))
    settle(folder)
    done = mtlscale("validate-results", folder)
    assert done.code == 1 and f"{folder}: and " in done.stdout and "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) < 700


def test_a_metric_with_the_other_direction_is_refused(folder: Path) -> None:
    change_record(folder, lambda record: record["higher_is_better"].update(accuracy=False))
    settle(folder)
    assert "records.jsonl:1: higher_is_better: accuracy has the other direction" in [
        str(problem) for problem in check(folder).problems
    ]


OWN = """

class PlainMean(Balancer):
    "Equal weights, as one's own."
    name: ClassVar[str] = "plain_mean"

    def __call__(self, losses, gramian, state):
        return torch.ones_like(losses), state


with suppress(OSError):
    Path({canary!r}).touch()
with suppress(OSError):
    socket.create_connection(("127.0.0.1", {port}), 5).close()
"""
CONTRIBUTE = """
import sys
from pathlib import Path
from mtlscale.config import load_experiment, read_settings
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.api.submission.write import contribute
from mtlscale.data.readers.prepared import load_prepared
from mtlscale.records import Home, Ledger
from mtlscale.training import train

root = Path(sys.argv[1])
experiment, home = load_experiment(root / "own.yaml"), Home(root / "home")
data = load_prepared(prepare("lopsided", {}, None, home.root))
for run in experiment.runs({"lopsided": data.manifest.fingerprint}):
    Ledger(home.ledger("own")).append(train(run, data))
contribute(experiment, read_settings(root / "own.yaml"), home, root / "results", by="me")
"""


@pytest.fixture(scope="module")
def with_plugins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, socket.socket]]:
    """Results with a data set and a balancer of a plugin, made elsewhere, and what it connects to where it runs."""
    root = tmp_path_factory.mktemp("contributed")
    uneven = (Path(__file__).parents[1] / "plugins" / "uneven.py").read_text().replace('"uneven"', '"lopsided"')
    head = "from __future__ import annotations\n"
    imports = "import socket\nfrom contextlib import suppress\nimport torch\nfrom mtlscale.balancing import Balancer\n"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        own = OWN.format(canary=str(root / "canary"), port=listener.getsockname()[1])
        (root / "own_parts.py").write_text(uneven.replace(head, head + imports) + own)
        settings = {
            "plugins": ["own_parts.py"],
            "datasets": ["lopsided"],
            "methods": ["stl", "equal", "plain_mean"],
            "model": {"encoder": {"name": "mlp", "hidden": [8]}},
            "training": {"epochs": 2, "batch_size": 16, "dtype": "float64"},
        }
        (root / "own.yaml").write_text(yaml.safe_dump(settings))
        subprocess.run([sys.executable, "-c", CONTRIBUTE, root], check=True, timeout=120)
        listener.settimeout(5)
        listener.accept()[0].close()
        assert (root / "canary").exists()  # it runs where its owner runs it
        (root / "canary").unlink()
        yield root / "results", listener


def ran(folder: Path, listener: socket.socket) -> bool:
    listener.setblocking(False)
    with suppress(BlockingIOError):
        listener.accept()[0].close()
        return True
    return (folder.parent / "canary").exists()


@pytest.mark.slow
def test_results_with_plugins_are_checked_compared_and_not_run(
    with_plugins: tuple[Path, socket.socket], tmp_path: Path
) -> None:
    folder, listener = with_plugins
    digest = hashlib.sha256((folder / "own_parts.py").read_bytes()).hexdigest()
    done = mtlscale("validate-results", folder)
    assert done.code == 0 and f"own_parts.py (sha256 {digest}) were read, not run" in done.stdout.replace("\n", " "), (
        done
    )
    shown = mtlscale("leaderboard", folder)
    assert shown.code == 0 and "plain_mean" in shown.stdout and "not imported" in " ".join(shown.stdout.split()), shown
    assert "part of contributed results" in refused("report", folder / "experiment.yaml")
    said = refused("validate-results", folder, "--rerun", "1", "--home", tmp_path)
    assert f"own_parts.py (sha256 {digest}), which run as code" in said and "--trust-plugins" in said
    assert not ran(folder, listener) and "mtlscale_plugin_own_parts" not in sys.modules


@pytest.mark.slow
def test_a_record_of_another_plugin_is_refused(with_plugins: tuple[Path, socket.socket], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(with_plugins[0], tmp_path / "results"))
    with (folder / "own_parts.py").open("a") as file:
        file.write("\nx = 1\n")
    settle(folder)
    problems = [str(problem) for problem in check(folder).problems]
    assert any("plain_mean comes from a plugin that is not in the folder" in problem for problem in problems), problems


@pytest.mark.slow
def test_trusted_plugins_run_without_network_and_write_nowhere(
    with_plugins: tuple[Path, socket.socket], tmp_path: Path
) -> None:
    folder, listener = with_plugins
    done = mtlscale("validate-results", folder, "--rerun", "2", "--trust-plugins", "--home", tmp_path)
    assert done.code == 0 and "once more: 2 the same to the last digit" in done.stdout, done
    has_sandbox = "lets no process leave" not in done.stdout
    assert ran(folder, listener) is not has_sandbox
    assert "mtlscale_plugin_own_parts" not in sys.modules


def test_a_system_without_sandbox_is_told(tmp_path: Path) -> None:
    program = [sys.executable, "-c", "print('went on')"]
    starter = f"import sys, runpy; sys.platform = 'other'; sys.argv = ['sandbox', {str(tmp_path)!r}, *{program!r}]; "
    done = subprocess.run(
        [sys.executable, "-c", f"{starter}runpy.run_path({sandbox.__file__!r}, run_name='__main__')"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "went on\n" and "namespaces" in (tmp_path / sandbox.REFUSED).read_text()
