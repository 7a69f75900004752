"""Names that other libraries use, settings in a wrong place: one line that says what was meant."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from command import mtlscale, refused

from mtlscale import run
from mtlscale.config import Run, TrainingSpec, UserError, find_experiment, load_experiment, loaded, nearest
from mtlscale.config.registry.components import names
from mtlscale.config.registry.synonyms import _ELSEWHERE, names_here, plain
from mtlscale.data.readers.prepared import PreparedData
from mtlscale.training import Trainer

File = Callable[..., Path]

BALANCER = '''
from mtlscale.balancing import Balancer

class Mine(Balancer):
    """Mine."""
    name = "mine"
    {needs}
    def __call__(self, losses, gramian, state):
        return {weights}, state
'''


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ({"methods": "[single_task]"}, "unknown method 'single_task': it is called stl here"),
        ({"methods": "[UW]"}, "unknown method 'UW': it is called uncertainty here"),
        ({"methods": "[ls]"}, "unknown method 'ls': it is called equal here"),
        ({"methods": "[hard_sharing]"}, "it is called hps here"),
        ({"methods": "[nashmtl]"}, "did you mean nash_mtl?"),
        ({"methods": "[pc_grad]"}, "did you mean pcgrad?"),
        ({"methods": "[zzz]"}, "; `mtlscale list methods` has all"),
        ({"methods": "stl"}, "small.yaml:4: methods: should be a list, such as [stl, equal, mgda]"),
        (
            {"methods": "[[stl, equal]]"},
            "methods.0: should be a name, or a mapping such as {name: mgda}, not ['stl', 'eq",
        ),
        ({"methods": "[null]"}, "methods.0: should be a name, or a mapping such as {name: mgda}, not nothing"),
        ({"datasets": "[1]"}, "datasets.0: should be a name, or a mapping such as {name: digits}, not 1"),
        ({"methods": "[{name: mgda, lr: 0.1}]"}, "lr is no option of mgda; write `training: {lr: 0.1}`"),
        ({"methods": "[{name: mgda, dropout: 0.1}]"}, "dropout is no option of mgda; write `model: {dropout: 0.1}`"),
        (
            {"search": "{space: {training.lr: {low: 1, high: 2, log: true}}}"},
            "training.lr.log: it is called scale here",
        ),
        (
            {"datasets": "[{name: table, options: {targets: [target]}}]"},
            "targets = ['target'] should be a mapping, such as {KEY: VALUE}",
        ),
        ({"seeds": "3"}, "small.yaml:5: seeds: should be a list, such as [0, 1, 2]"),
        ({"training": "5"}, "training: should be a mapping, such as {epochs: 5}, not 5"),
        ({"training": "{learning_rate: 1}"}, "unknown key training.learning_rate: it is called lr here"),
        ({"training": "{device: cuda}"}, "unknown key training.device: it is `resources.gpus_per_worker` here"),
        ({"epochs": "3"}, "unknown key epochs: it is `training.epochs` here"),
        ({"search": "{space: {training.learning_rate: [1]}}"}, "training.learning_rate; it is called lr here"),
        ({"search": "{space: {learning_rate: [1]}}"}, "write it with its section, as training.lr"),
        ({"datasets": "[{name: digits, negatives: 1}]"}, "negatives is an option of digits; write `options: {negative"),
        (
            {"datasets": "[{name: digits, metrics: [rmse]}]"},
            "task 'digit0': metric 'rmse' is not defined for loss 'cross_entropy'; use one of accuracy",
        ),
        (
            {"datasets": "[{name: digits, metrics: [success]}]"},
            "metric 'success' measures episodes of tasks that are environments, and is not defined for loss",
        ),
    ],
)
def test_what_was_meant_is_named(lines: dict[str, str], message: str, experiment_file: File, tmp_path: Path) -> None:
    assert message in refused("run", experiment_file(**lines), "--dry-run", "--home", tmp_path / "home")


def test_a_name_elsewhere_leads_to_a_name_that_is_there() -> None:
    kinds = ("architectures", "balancers", "objectives", "encoders", "datasets", "metrics")
    shipped = {name for kind in kinds for name in names(kind, plugins=False)}
    for name, others in _ELSEWHERE.items():
        assert all(other == plain(other) for other in others.split()), name
        if name in shipped:
            assert f"it is called {name} here" == nearest(others.split()[-1], [name])
    assert {"stl", "equal", "hps", "uncertainty", "rlw"} < shipped & _ELSEWHERE.keys()
    assert not [name for name in TrainingSpec.model_fields if names_here(name) and name not in ("clip", "noise")]


def test_off_is_a_word_of_amp(experiment_file: File) -> None:
    assert load_experiment(experiment_file(training="{amp: off}")).training.amp == "off"
    assert load_experiment(experiment_file(training="{}"), ("training.amp=off",)).training.amp == "off"


def test_a_wrong_setting_of_the_command_line_is_said_to_be_there(experiment_file: File) -> None:
    path = experiment_file()
    message = refused("run", path, "--dry-run", "--set", "training.epochs=2", "--set", "training.epoch=3")
    assert message == "--set training.epoch=3: unknown key training.epoch: did you mean epochs or steps_per_epoch?"
    assert refused("run", path, "--set", "seeds=[0]", "--set", "training.lr=0").startswith("--set training.lr=0: ")
    assert refused("run", experiment_file(seeds="3"), "--set", "training.lr=1").startswith(f"{path}:5: seeds: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "x.yaml", "--epochs", "3"], "no such option: --epochs; write --set training.epochs=3"),
        (["run", "x.yaml", "--learning-rate=3"], "write --set training.lr=3"),
        (["run", "x.yaml", "--seed", "3"], "write --set seeds=[3]"),
        (["run", "x.yaml", "--gpus", "1"], "write --set resources.gpus_per_worker=1"),
        (["show", "x", "--epochs", "3"], "no such option: --epochs; `mtlscale show --help` shows what it has"),
        (["list", "keys", "training.epoch"], "did you mean epochs or steps_per_epoch?; `mtlscale list keys training` "),
        (["list", "keys", "training.epochs"], "it is a key of training; `mtlscale list keys training` shows all"),
        (["run", "quickstart", "--set", "methods[0]=mgda"], "entries of a list are named by dots, methods.0=mgda"),
        (["predict", "a", "b", "--batch-size", "0"], "'--batch-size': should be greater than or equal to 1, not '0';"),
        (["work", "x.yaml", "--task", "first"], ": should be a whole number, not 'first'; `mtlscale work --help`"),
        (["submit", "x.yaml", "--fast"], "no such option: --fast; `mtlscale run` has it"),
        (["logs", "x", "--json"], "`mtlscale prepare` and 7 more have it; `mtlscale logs --help`"),
        (["show", "x", "--jsn"], "no such option: --jsn; did you mean --json?"),
        (["rnu"], "Did you mean 'run'?"),
        (["run"], "Missing argument 'experiment'; `mtlscale run --help`"),
        (["run", "a", "b"], "unexpected extra argument(s) (b)"),
    ],
)
def test_a_mistaken_command_is_one_line(arguments: list[str], message: str) -> None:
    assert message in refused(*arguments)


def test_an_experiment_file_of_another_ending_and_several_rows_are_named(
    experiment_file: File, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = experiment_file()
    monkeypatch.chdir(path.parent)
    for name in ("small.yml", "Small.yaml", "SMALL.YAML"):
        assert refused("run", name) == f"experiment file {name} does not exist; did you mean small.yaml?"
    assert refused("run", "small") == "unknown experiment 'small': did you mean small.yaml?"
    several = refused("run", path, "--dry-run", "--home", tmp_path / "home", "--only", "stl,equal")
    assert several == "--only stl,equal: small has no such method; several are written --only stl --only equal"


def test_a_command_without_anything_shows_its_help() -> None:
    done = mtlscale()
    assert done.code == 2 and "Usage: mtlscale" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("needs", "weights", "message"),
    [
        ("", "gramian.diagonal()", "mine reads the Gramian, but needs = 'losses'; set needs = 'gramian'"),
        ("", "losses * float('nan')", r"balancer mine: weights are nan for losses [1, 2]; mend the plugin"),
    ],
)
def test_a_balancer_that_cannot_work_is_refused(
    needs: str, weights: str, message: str, tmp_path: Path, experiment_file: File
) -> None:
    own = tmp_path / "own_plugin.py"
    own.write_text(BALANCER.format(needs=needs, weights=weights))
    path = experiment_file(plugins=f"[{own}]", datasets="[digits]", methods="[mine]")
    assert message in refused("run", path, "--dry-run", "--home", tmp_path / "home")


def test_weights_that_are_no_numbers_are_named(
    tmp_path: Path, experiment_file: File, uneven: Callable[..., PreparedData], run_of: Callable[..., Run]
) -> None:
    own = tmp_path / "own_plugin.py"
    own.write_text(BALANCER.format(needs="", weights="losses / (losses >= 1)"))
    uneven_plugin = Path(__file__).parents[1] / "plugins" / "uneven.py"
    path = experiment_file(plugins=f"[{uneven_plugin}, {own}]", methods="[mine]")
    epochs = Trainer(run_of(load_experiment(path), uneven()), uneven()).train()
    with pytest.raises(StopIteration) as end:
        next(epochs)
    assert end.value.value.error == "mine: weights of mine are inf in step 1"

    done = mtlscale("run", path, "--dry-run", "--home", tmp_path / "home")
    assert done.code == 0 and "StopIteration" not in done.stdout  # it trains no step


@pytest.mark.parametrize("home", ["results", "./results", "~/results"])
def test_a_job_keeps_nothing_in_its_own_folder(home: str, experiment_file: File) -> None:
    message = refused("submit", experiment_file(), "--home", home, "--address", "http://127.0.0.1:1")
    assert message.startswith(f"--home {home} would lie in the job's own folder, which Ray removes; name a full path")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ({"seeds": "0-4"}, r"should be a list, such as \[0, 1, 2, 3, 4\], not the text '0-4'"),
        ({"seeds": "range(3)"}, r"should be a list, such as \[0, 1, 2\]"),
        ({"seeds": "'4, 5'"}, r"should be a list, such as \[4, 5\]"),
        ({"seeds": "[1..3]"}, r"should be an integer, not the text '1..3'; write \[1, 2, 3\]"),
        ({"training": "{lr: 1e-4..1e-2}"}, r"training.lr: should be a number.*a range is for `search.space`"),
        (
            {"training": "{lr: [0.1, 0.2]}"},
            r"training.lr: should be a number, not \[0.1, 0.2\]; to try several.*search",
        ),
        ({"training": "{epochs: $EPOCHS}"}, "variables of the environment are not read here"),
        ({"training": "{optimizer: Adma}"}, "should be 'adam'.*did you mean adam"),
        ({"name": "_x"}, "name: should be letters, digits and . _ -"),
        ({"methods": "[{mgda: {normalize: l2}}]"}, "write {name: mgda, normalize: l2}"),
        ({"methods": "[mgda(normalize=l2)]"}, "write {name: mgda, normalize: l2}"),
        ({"methods": "[lstm]"}, "unknown method 'lstm': it is an encoder"),
        ({"methods": "[sgd]"}, "it is an optimizer"),
        ({"datasets": "[{digits: {negatives: 5}}]"}, "write {name: digits, options: {negatives: 5}}"),
        ({"datasets": "[{name: digits, metrics: accuracy}]"}, r"datasets.0.metrics: should be a list"),
    ],
)
def test_shorthands_are_answered_with_what_they_stand_for(
    lines: dict[str, str], message: str, experiment_file: Callable[..., Path]
) -> None:
    with pytest.raises(UserError) as error:
        load_experiment(experiment_file(**lines))
    assert re.search(message, str(error.value)), str(error.value)
    assert not re.search(r"tuple\[|Input should", str(error.value))


def test_keys_for_anchors_are_nobodys(experiment_file: Callable[..., Path]) -> None:
    file = experiment_file(training="*short")
    file.write_text("x-short: &short {epochs: 2}\n" + file.read_text())
    assert load_experiment(file).training.epochs == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "FOLDER"), "is a folder; name an experiment file, such as .*a.yaml"),
        (("run", "t.csv"), "it is a table: `mtlscale inspect t.csv --write t.yaml`"),
        (("run", "mine.py"), r"name it in an experiment file: `plugins: \[mine.py\]`"),
        (("run", "digits"), "digits is no experiment, it is a data set"),
        (("diagnose", "t.csv"), "it is a table: `mtlscale inspect t.csv --write t.yaml`"),
        (("prepare", "FOLDER"), "it is a folder"),
        (("list", "balancers", "mmoe"), "it is an architecture"),
        (("inspect", "a.yaml"), "a.yaml is an experiment file"),
    ],
)
def test_things_of_another_kind_are_named_as_such(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("datasets: [digits]\nmethods: [stl]\n")
    (tmp_path / "t.csv").write_text("x,y\n1,2\n")
    with contextlib.chdir(tmp_path):
        answer = refused(*(str(tmp_path) if argument == "FOLDER" else argument for argument in arguments))
    assert re.search(message, answer), answer


@pytest.mark.parametrize(
    ("experiment", "message"),
    [
        ("quikstart", "did you mean quickstart"),
        ("nowhere.yaml", "nowhere.yaml does not exist"),
        (Path("nowhere.yaml"), "nowhere.yaml does not exist"),
        (None, "an experiment is a file, a name, .*, not None"),
        ({"methods": ["stl"]}, "not a dict"),
    ],
)
def test_run_takes_names_and_paths(experiment: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        run(experiment, home=str(tmp_path / "home"))  # type: ignore[arg-type]
    assert not (tmp_path / "home").exists()
    assert loaded("quickstart") == loaded(find_experiment("quickstart")) == loaded(load_experiment("quickstart"))
