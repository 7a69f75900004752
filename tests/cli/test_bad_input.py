"""Bad input: one line that names the mistake and the mend, exit status 2, nothing written."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from command import mtlscale, refused

File = Callable[..., Path]

UNEVEN = Path(__file__).parents[1] / "plugins" / "uneven.py"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def told(experiment_file: File, home: Path) -> Callable[..., str]:
    """What a dry run and a run of the small experiment with other lines are refused with; they leave nothing."""

    def tell(commands: tuple[tuple[str, ...], ...] = (("run", "--dry-run"), ("run",)), **lines: str) -> str:
        path = experiment_file(**lines)
        messages = {refused(command[0], path, "--home", home, *command[1:]) for command in commands}
        assert len(messages) == 1
        assert not home.exists()
        return messages.pop()

    return tell


# -- the file ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\x00", r"x\.yaml:1: byte 0x89 is no UTF-8 text; save the file as UTF-8"),
        ("name: x\ndescription: caf\xe9\n".encode("latin-1"), r"x\.yaml:2: byte 0xe9 is no UTF-8 text"),
        (b"name: x\x00y\n", r"x\.yaml: not valid YAML: .*; mend it"),
        (b"", r"x\.yaml: an experiment file is a mapping"),
        (b"a" * (2 << 20), r"x\.yaml is larger than 1 MiB"),
        (b"name: x\nseeds: [0]\nname: y\n", r"x\.yaml:3: key 'name' is there twice, in lines 1 and 3; drop one"),
        (b"name: x\ntraining: {lr: 1, lr: 2}\n", r"x\.yaml:2: key 'lr' is there twice, in this line; drop one"),
        (b"name: x\nseeds: " + b"[" * 9999, r"x\.yaml.*: not valid YAML: .*"),
        (b"name: &x [*x]\n", r"x\.yaml:1: an alias stands within what it stands for"),
        (
            b"a: &a [x,x,x,x,x,x,x,x,x,x]\n"
            + b"".join(b"%c: &%c [%s]\n" % (c, c, b",".join([b"*%c" % (c - 1)] * 10)) for c in range(98, 106)),
            r"holds more than 100,000 values",
        ),
        (b"name: 2020-13-45\n", r"x\.yaml: a value cannot be read \(month must be in 1..12\); write it in quotes"),
        (b"name: !!python/object:os.system {}\n", r"x\.yaml:1: not valid YAML: could not determine a constructor"),
    ],
)
def test_a_file_that_is_no_experiment(content: bytes, message: str, tmp_path: Path, home: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    assert re.search(message, refused("run", path, "--dry-run", "--home", home))
    assert not home.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read(experiment_file: File) -> None:
    path = experiment_file()
    path.chmod(0)
    assert "cannot be read (Permission denied); mend its permissions" in refused("run", path)


def test_a_name_that_is_no_file(tmp_path: Path) -> None:
    assert "unknown experiment" in refused("run", "x" * 400)
    assert "does not exist" in refused("run", f"{'x' * 400}.yaml")


def test_a_name_that_is_too_long_for_a_folder(experiment_file: File, home: Path) -> None:
    message = refused("run", experiment_file(), "--set", f"name={'x' * 400}", "--home", home)
    assert "name: has 400 characters; files are named by it: use at most 100" in message and not home.exists()


# -- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ({"training": "{lr: .inf}"}, r"small.yaml:7: training.lr: .*finite number"),
        ({"training": "{lr: .nan}"}, r"small.yaml:7: training.lr: .*finite number"),
        ({"training": "{epochs: true}"}, r"small.yaml:7: training.epochs: should be a number, not true"),
        ({"training": "{channels_last: 1}"}, r"training.channels_last: should be true or false, not 1"),
        ({"training": "{epochs: '5'}"}, r"training.epochs: should be an integer, not the text '5'"),
        ({"seeds": "[true]"}, r"small.yaml:5: seeds: should be a number, not true"),
        ({"tracking": "{enabled: 'no'}"}, r"tracking.enabled: should be true or false, not 'no'"),
        ({"resources": "{timeout_minutes: .inf}"}, r"resources.timeout_minutes: .*finite number"),
        ({"search": "{budget: 1000000000}"}, r"search.budget: .*less than or equal to 100000"),
        (
            {"search": "{algorithm: grid, space: {training.lr: {low: 1, high: 2, points: 100000000}}}"},
            r"points: .*1000",
        ),
        ({"search": "{space: {training.lr: {low: 1, high: .inf}}}"}, r"high: .*finite number"),
        (
            {"methods": "[{name: equal, label: ../x}]"},
            r"small.yaml:4: methods.0.label: '../x' cannot be part of a file's",
        ),
        ({"datasets": "[{name: uneven, label: ../x}]"}, r"datasets.0.label: '../x' cannot be part of a file's name"),
        ({"methods": f"[{{name: equal, label: {'x' * 400}}}]"}, r"methods.0.label: has 400 characters"),
        ({"methods": "[CoNAL]"}, r"unknown method 'CoNAL': did you mean conal\?$"),
        ({"methods": "[{name: getmtl, eps: .nan}]"}, r"getmtl: eps = nan is outside"),
        ({"methods": "[{name: getmtl, relative: 1}]"}, r"method getmtl: relative = 1 should be true or false"),
        ({"methods": "[{name: getmtl, eps: true}]"}, r"method getmtl: eps = True should be a number"),
        (
            {"methods": "[{name: static, weights: [1, -1, 1]}]"},
            r"static: weights = \[1.0, -1.0, 1.0\] is outside \[0, ∞\)",
        ),
        ({"methods": "[{name: tchebycheff, ideal: [.inf, 0, 0]}]"}, r"tchebycheff: ideal = .* should be finite"),
        ({"model": "{encoder: {name: mlp, hidden: [-8]}}"}, r"mlp: hidden = \[-8\] is outside \[1, ∞\)"),
        ({"model": "{encoder: {name: mlp, hidden: [a]}}"}, r"model.encoder: hidden = \['a'\] should be a number"),
        ({"model": "{encoder: {name: mlp, hidden: 8}}"}, r"model.encoder: hidden = 8 should be a list"),
    ],
)
def test_a_value_that_cannot_be(lines: dict[str, str], message: str, told: Callable[..., str]) -> None:
    assert re.search(message, told(**lines))


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ("{gpus_per_worker: 8}", "a worker needs 1 CPU and 8 GPUs, but the largest node has"),
        ("{workers: 1000}", "a run needs 1000 workers of 1 CPU, but the cluster's nodes have room for"),
    ],
)
def test_what_this_machine_lacks_is_refused_and_a_dry_run_plans_the_rest(
    resources: str, message: str, experiment_file: Callable[..., Path], tmp_path: Path
) -> None:
    path, home = experiment_file(resources=resources), tmp_path / "home"
    refusal = mtlscale("run", path, "--home", home)
    assert refusal.code == 2 and message in refusal.stderr
    planned = mtlscale("run", path, "--dry-run", "--home", home)
    assert planned.code == 0 and message in " ".join(planned.stdout.split())


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            {"model": "{encoder: textcnn}"},
            r"stl on uneven: encoder textcnn reads tokens, uneven has vectors; choose another",
        ),
        (
            {"methods": "[{name: static, weights: [1, 2]}]"},
            r"static on uneven: static: weights has 2 entries, but .* 3 tasks",
        ),
        (
            {"methods": "[{name: auto_lambda, primary: [7]}]"},
            r"auto_lambda: primary = \[7\] must name tasks from 0 to 2",
        ),
        (
            {"methods": "[conal]", "model": "{encoder: {name: mlp, hidden: []}}"},
            r"conal on uneven: conal branches between the stages of an encoder, this one has none; choose mlp with",
        ),
        (
            {"methods": "[{name: branched, points: [1, 2, 9]}]"},
            r"branched on uneven: branch point 9 is outside 1..2: the encoder has 1 stages",
        ),
        (
            {"methods": "[tag]", "datasets": "[{name: activations, options: {activations: [sinc]}}]"},
            r"tag on activations: tag groups tasks, activations has one; use hps",
        ),
        (
            {"methods": "[{name: conal, found: small.yaml}]"},
            r"conal on uneven: found: .*small.yaml is not what a phase has left; name a file of a home folder's",
        ),
        ({"methods": "[mtan]"}, r"mtan on uneven: .*works between the stages of an encoder"),
        ({"training": "{augment: flip}"}, r"training.augment: flip changes images, uneven has vectors; drop it"),
        (
            {
                "methods": "[{architecture: rotograd, balancer: mgda}]",
                "datasets": "[{name: uneven, options: {shared: true}}]",
            },
            r"rotograd\+mgda on uneven: this architecture .*; use a balancer that weights losses",
        ),
    ],
)
@pytest.mark.parametrize("command", [["run", "--dry-run"], ["run"], ["sweep", "--dry-run"]])
def test_what_does_not_go_with_the_data(
    lines: dict[str, str], message: str, command: list[str], experiment_file: File, home: Path
) -> None:
    if command[0] == "sweep":
        lines = {**lines, "search": "{budget: 2}"}
    assert re.search(message, refused(command[0], experiment_file(**lines), "--home", home, *command[1:]))
    if "--dry-run" in command:
        assert not home.exists()
        return
    assert {path.name for path in home.iterdir()} <= {"data", "experiments"}  # the prepared data are good
    assert not [path for path in home.rglob("*") if path.is_file() and "data" not in path.parts]


# -- plugins -----------------------------------------------------------------------------------------------------------

BALANCER = '''
from mtlscale.balancing import Balancer

class Own(Balancer):
    """Mine."""
    name = "own"
    {declared}
    def init(self, tasks, *, seed=0, batch=()):
        return {{}}
    def __call__(self, losses, gramian, state):
        {body}
'''
GOOD = "return losses.new_ones(losses.shape), state"


@pytest.mark.parametrize(
    ("declared", "body", "message"),
    [
        ("needs = 'hessian'", GOOD, r"Own: needs = 'hessian' is unknown; choose losses, gramian, .*, modules"),
        ("needs = 'jacobian'", GOOD, r"Own: needs = 'jacobian', so it has to derive from JacobianBalancer"),
        ("needs = 'modules'", GOOD, r"Own: needs = 'modules', so it has to derive from ModuleBalancer"),
        ("heads = 'max'", GOOD, r"Own: heads = 'max' is unknown; choose weighted, mean, sum"),
        ("name = 'a/b'", GOOD, r"Own: name = 'a/b' should be a word"),
        ("name = 5", GOOD, r"Own: name = 5 should be a word"),
        ("results_version = 'new'", GOOD, r"Own: results_version = 'new' should be a whole number"),
        ("knob: float", GOOD, r"Own: knob needs a default"),
        ("x = 1", "return losses", r"balancer own returns a Tensor; its call has to return \(weights \[2\], state\)"),
        ("x = 1", "return losses, state, 1", r"balancer own returns 3 values; its call has to return"),
        ("x = 1", "return losses.sum(), state", r"balancer own returns weights of shape \[\]; its call has to return"),
        ("x = 1", "return [1.0, 1.0], state", r"balancer own returns weights a list; its call"),
        ("x = 1", "return losses, 3", r"balancer own returns a state that is no dictionary of tensors"),
    ],
)
def test_a_balancer_that_is_none(
    declared: str, body: str, message: str, tmp_path: Path, told: Callable[..., str]
) -> None:
    own = tmp_path / "own_plugin.py"
    own.write_text(BALANCER.format(declared=declared, body=body))
    assert re.search(message, told(plugins=f"[{UNEVEN}, {own}]", methods="[own]"))


def test_a_balancer_that_raises_is_named_with_its_line(tmp_path: Path, experiment_file: File, home: Path) -> None:
    own = tmp_path / "own_plugin.py"
    own.write_text(BALANCER.format(declared="x = 1", body="raise ValueError('no luck\\nat all')"))
    path = experiment_file(plugins=f"[{UNEVEN}, {own}]", methods="[own]")
    message = refused("run", path, "--dry-run", "--home", home)
    assert re.search(r"own on uneven: .*own_plugin.py:11: balancer own: ValueError: no luck; mend the plugin$", message)


def test_a_balancer_that_never_returns_is_named_with_its_line(
    tmp_path: Path, experiment_file: File, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtlscale.balancing.contract._PATIENCE", 0.2)
    own = tmp_path / "own_plugin.py"
    own.write_text(BALANCER.format(declared="x = 1", body="import threading; threading.Event().wait()"))
    path = experiment_file(plugins=f"[{UNEVEN}, {own}]", methods="[own]")
    message = refused("run", path, "--dry-run", "--home", home)
    assert re.search(r"own_plugin.py:11: balancer own has not returned .* after 0 s; mend the plugin$", message)


PLUGINS = {
    "def broken(:\n": r"mine.py:1 cannot be imported: SyntaxError",
    "raise ValueError('no luck')\n": r"mine.py:1 cannot be imported: ValueError: no luck",
    "import sys\nsys.exit(3)\n": r"mine.py:2 cannot be imported: SystemExit: 3",
    "import nothing_of_that_name\n": r"mine.py:1 cannot be imported: ModuleNotFoundError",
    "x = 1\n": r"mine.py defines no balancer, architecture, encoder, objective, metric or pipeline",
}


@pytest.mark.parametrize("text", PLUGINS)
def test_a_plugin_that_cannot_be_loaded(text: str, tmp_path: Path, told: Callable[..., str]) -> None:
    (tmp_path / "mine.py").write_text(text)
    assert re.search(PLUGINS[text], told(plugins="[mine.py]"))


def test_a_plugin_beside_the_experiment_is_named_with_its_line(
    tmp_path: Path, experiment_file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("x = 1\nimport nothing_of_that_name\n")
    path = experiment_file(plugins="[mine.py]")
    assert "plugin mine.py:2 cannot be imported" in refused("run", path.name, "--dry-run")


def test_plugins_that_are_no_list_of_files(tmp_path: Path, told: Callable[..., str]) -> None:
    (tmp_path / "mine.txt").write_text("x = 1\n")
    assert re.search("plugins is a list of files", told(plugins="mine.py"))
    assert re.search("is no Python file", told(plugins="[mine.txt]"))
    assert re.search("does not exist", told(plugins=f"[{'x' * 400}.py]"))


# -- places ------------------------------------------------------------------------------------------------------------


def _places(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "file").write_text("")
    return {
        str(tmp_path / "file"): "is a file; name a folder",
        str(tmp_path / "file" / "below"): "is below the file",
        "/proc/nowhere": "cannot be written",
    }


def test_a_home_that_cannot_be(experiment_file: File, tmp_path: Path) -> None:
    path = experiment_file()
    for place, problem in _places(tmp_path).items():
        for command in (["run", path], ["run", path, "--dry-run"], ["prepare", "digits"]):
            assert problem in refused(*command, "--home", place)
        done = mtlscale("doctor", "--home", place)
        assert done.code == 1
        line = next(line for line in done.stdout.splitlines() if "home folder" in line)
        assert "✗" in line


def test_a_source_that_no_data_set_needs(experiment_file: File, home: Path) -> None:
    message = refused("run", experiment_file(), "--source", "/nowhere", "--home", home)
    assert message == "source /nowhere does not exist; correct it, or drop it: uneven needs none" and not home.exists()


def test_submit_looks_at_its_files_before_the_network(experiment_file: File, tmp_path: Path) -> None:
    nobody = ["--address", "http://127.0.0.1:1"]
    bad = experiment_file(training="{epochs: true}")
    assert "training.epochs" in refused("submit", bad, *nobody)
    assert "--include" in refused("submit", experiment_file(), "--include", tmp_path / "nowhere", *nobody)
    assert "--only famo: small has no such method" in refused("submit", experiment_file(), "--only", "famo", *nobody)
    assert "--dataset digits: small has no such data set" in refused(
        "submit", experiment_file(), "--dataset", "digits", *nobody
    )
    assert "no Ray job server answers" in refused("submit", experiment_file(), *nobody)


def test_what_has_not_been_run_has_nothing_to_show(experiment_file: File, home: Path) -> None:
    path = experiment_file()
    for command in ("sync", "leaderboard", "report"):
        assert f"no runs of small in {home}; start them with `mtlscale run" in refused(command, path, "--home", home)
    assert not home.exists()
