"""Names that other libraries use, settings in a wrong place: one line that says what was meant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from command import mtlscale, refused

from mtlscale.config import Run, TrainingSpec, load_experiment, nearest
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
        (["show", "x", "--jsn"], "no such option: --jsn; did you mean --json?"),
        (["rnu"], "Did you mean 'run'?"),
        (["run"], "Missing argument 'experiment'; `mtlscale run --help`"),
        (["run", "a", "b"], "unexpected extra argument(s) (b)"),
    ],
)
def test_a_mistaken_command_is_one_line(arguments: list[str], message: str) -> None:
    assert message in refused(*arguments)


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
    assert done.code == 0 and "StopIteration" not in done.stdout and "weights of mine are inf" in done.stdout


@pytest.mark.parametrize("home", ["results", "./results", "~/results"])
def test_a_job_keeps_nothing_in_its_own_folder(home: str, experiment_file: File) -> None:
    message = refused("submit", experiment_file(), "--home", home, "--address", "http://127.0.0.1:1")
    assert message.startswith(f"--home {home} would lie in the job's own folder, which Ray removes; name a full path")
