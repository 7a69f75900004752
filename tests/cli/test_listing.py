"""`mtlscale list` and `prepare` with files of one's own, and at 80 columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command import mtlscale, refused
from rich.cells import cell_len

from mtlscale.config import Experiment, ResourceSpec, TrainingSpec, component, names, shipped
from mtlscale.metrics import all_metrics

UNEVEN = Path(__file__).parents[1] / "plugins" / "uneven.py"
METRIC = '''
from mtlscale.metrics import Metric

class Mine(Metric):
    """Twice as good."""
    name = "own_metric"
    higher_is_better = True
    losses = ("bce",)
    def sums(self, task, prediction, target):
        raise NotImplementedError
'''
BALANCER = '''
from mtlscale.balancing import Balancer
from mtlscale.config import knob

class Mine(Balancer):
    """Weights [all] tasks alike.

    And says so in a second paragraph.
    """
    name = "own_balancer_with_a_long_name"
    source = "nobody, nowhere"
    strength: float = knob(0.5, low=0, high=1, help="how much [of it]")
    def init(self, tasks, *, seed=0, batch=()):
        return {}
    def __call__(self, losses, gramian, state):
        return losses.new_ones(losses.shape), state
'''


@pytest.mark.parametrize("columns", [80, *(pytest.param(n, marks=pytest.mark.slow) for n in (100, 160))])  # one is cut
@pytest.mark.parametrize("what", ["methods", "encoders", "metrics", "datasets", "experiments"])
def test_nothing_is_cut(what: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    done = mtlscale("list", what)
    assert done.code == 0 and max(map(cell_len, done.stdout.splitlines())) <= columns
    known = {"metrics": list(all_metrics()), "experiments": list(shipped())}
    words = set(done.stdout.split())
    for kind in ("architectures", "balancers", "objectives") if what == "methods" else (what,):
        for name in known.get(kind) or names(kind, plugins=False):
            assert name in words, name
            if kind not in known:
                for key in component(kind, name).knobs():
                    assert any(word.startswith(f"{key}=") for word in words), f"{name}.{key}"


def test_components_of_a_plugin_are_marked(tmp_path: Path) -> None:
    for name, text, kind in (("metric.py", METRIC, "metrics"), ("balancer.py", BALANCER, "balancers")):
        (tmp_path / name).write_text(text)
        done = mtlscale("list", kind, "--plugin", tmp_path / name)
        assert done.code == 0 and f"plugin {name}" in done.stdout and "own_" in done.stdout
    done = mtlscale("list", "datasets", "--plugin", UNEVEN)
    assert "uneven" in done.stdout and "plugin uneven.py" in done.stdout


def test_one_component_is_shown_whole(tmp_path: Path) -> None:
    (tmp_path / "balancer.py").write_text(BALANCER)
    done = mtlscale("list", "methods", "own_balancer_with_a_long_name", "--plugin", tmp_path / "balancer.py")
    for text in (
        *("own_balancer_with_a_long_name, a balancer (plugin balancer.py)", "Weights [all] tasks alike."),
        *("And says so in a second paragraph.", "nobody, nowhere", "strength", "0.5", "[0, 1]", "how much [of it]"),
    ):
        assert text in done.stdout, text
    whole = mtlscale("list", "balancers", "getmtl").stdout
    assert all(text in whole for text in ("eps", "0.025", "(0, 1]", "Chai et al., ACL 2023", "relative"))
    assert "Right labels among those present" in mtlscale("list", "metrics", "accuracy").stdout
    assert mtlscale("list", "experiments", "quickstart").stdout == shipped()["quickstart"].read_text()
    assert "did you mean getmtl" in refused("list", "balancers", "getmlt")


def test_all_data_sets_of_an_experiment_are_prepared(experiment_file: Callable[..., Path], tmp_path: Path) -> None:
    home = tmp_path / "home"
    path = experiment_file(datasets="[uneven, {name: uneven, label: again, options: {skewed: true}}, digits]")
    path.write_text(path.read_text().replace("skewed: true", _option()))
    done = mtlscale("prepare", path, "--home", home, "--json")
    assert done.code == 0, done
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["event"] for line in lines] == ["prepared"] * 3 + ["done"]
    assert [line["dataset"] for line in lines[:-1]] == ["uneven", "uneven", "digits"]
    assert len({line["folder"] for line in lines[:-1]}) == 3
    assert all(Path(line["folder"]).is_dir() for line in lines[:-1])
    quiet = mtlscale("prepare", path, "--home", home, "--quiet")
    assert quiet.stdout.split() == [line["folder"] for line in lines[:-1]]
    assert "is an experiment; its settings are --set" in refused("prepare", path, "--option", "a=1", "--home", home)
    assert "is a data set; its options are --option" in refused("prepare", "digits", "--set", "a=1", "--home", home)


def _option() -> str:
    """An option of the data set that is not at its default."""
    from mtlscale.config import load_plugin

    load_plugin(UNEVEN)
    key, (default, _) = next(
        item for item in component("datasets", "uneven").knobs().items() if isinstance(item[1][0], bool)
    )
    return f"{key}: {str(not default).lower()}"


def test_a_data_set_of_a_plugin_is_prepared_by_its_name(tmp_path: Path) -> None:
    done = mtlscale("prepare", "uneven", "--plugin", UNEVEN, "--home", tmp_path)
    assert done.code == 0 and "uneven ·" in done.stdout


def test_the_keys_of_the_experiment_file_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    text = " ".join(mtlscale("list", "keys").stdout.split())
    for key in (*Experiment.model_fields, *TrainingSpec.model_fields, *ResourceSpec.model_fields):
        assert f" {key} " in text, key
    assert "learning rate" in text and "keys of training" in text and "`" not in text

    training = mtlscale("list", "keys", "training").stdout
    assert "mixed precision" in training and "gpus_per_worker" not in training
    assert "no section 'trainig'; did you mean training or" in refused("list", "keys", "trainig")


@pytest.mark.parametrize(
    ("arguments", "name", "key"),
    [
        (["balancers"], "mgda", "knobs"),
        (["methods", "mmoe"], "mmoe", "knobs"),
        (["metrics", "auroc"], "auroc", "higher_is_better"),
        (["experiments", "quickstart"], "quickstart", "file"),
    ],
)
def test_lists_as_json(arguments: list[str], name: str, key: str) -> None:
    done = mtlscale("list", *arguments, "--json")
    [entry] = [entry for entry in json.loads(done.stdout) if entry["name"] == name]
    assert done.code == 0 and key in entry


def test_keys_as_json() -> None:
    listed = json.loads(mtlscale("list", "keys", "training", "--json").stdout)
    [lr] = [entry for entry in listed if entry["key"] == "lr"]
    assert lr == {
        "section": "training",
        "key": "lr",
        "what": "learning rate",
        "value": "number > 0",
        "default": "0.001",
    }
    assert "unknown balancer 'mgdaa'; did you mean mgda" in refused("list", "balancers", "mgdaa", "--json")
