"""Plugins: what a user's file may be called and define, and that its text is part of what a run is known by."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mtlscale.config import UserError, component, load_experiment, load_plugin
from mtlscale.config.registry.components import source_hash
from mtlscale.execution.preparing.prepare import find_prepared, prepare

PLUGIN = '''\
"""A balancer of this test."""
from mtlscale.balancing import Balancer

class Own(Balancer):
    """{text}"""
    name = "{name}"
    needs = "losses"
    def init(self, tasks): return {{}}
    def __call__(self, losses, gramian, state): return losses.new_ones(losses.shape){code}, state
'''
UNEVEN = Path(__file__).parents[1] / "plugins" / "uneven.py"


def plugin(
    folder: Path, name: str = "own_rule", text: str = "Equal weights.", file: str = "mine.py", code: str = ""
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(PLUGIN.format(name=name, text=text, code=code))
    return folder / file


def ids(path: Path) -> list[str]:
    experiment = load_experiment(path)
    return [run.run_id for run in experiment.runs(dict.fromkeys(experiment.data(), "0" * 64))]


def test_an_edited_plugin_is_another_run(tmp_path: Path, experiment_file: Callable[..., Path]) -> None:
    own = plugin(tmp_path)
    path = experiment_file(plugins=f"[{UNEVEN}, {own}]", methods="[equal, own_rule]")
    first = ids(path)
    assert ids(path) == first
    plugin(tmp_path / "elsewhere")
    moved = experiment_file("moved", plugins=f"[{UNEVEN}, {tmp_path}/elsewhere/mine.py]", methods="[equal, own_rule]")
    assert ids(moved) == first  # where it lies says nothing
    plugin(tmp_path, code=" / 2")
    edited = dict(zip(first, ids(path), strict=True))
    changed = {before: after for before, after in edited.items() if before != after}
    assert len(changed) == 1, "equal is shipped, and does not change with it"
    run = next(run for run in load_experiment(path).runs({"uneven": "0"}) if run.method == "own_rule")
    assert run.tuned({"training.lr": 0.5}).spec["balancer"] == run.spec["balancer"]


def test_a_plugin_is_imported_once_and_again_when_its_text_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that was loaded last counts, wherever files of one name lie."""

    def loaded(path: Path) -> tuple[type, str]:
        load_plugin(path)
        cls = component("balancers", "own_rule")
        return cls, source_hash(cls)

    own = plugin(tmp_path)
    first = loaded(own)
    assert loaded(own) == first

    other = loaded(plugin(tmp_path / "elsewhere", code=" / 2"))
    assert loaded(own) == first and sys.modules[first[0].__module__].__file__ == str(own)

    edited = loaded(plugin(tmp_path, code=" / 3"))
    assert len({first, other, edited}) == 3 and len({first[1], other[1], edited[1]}) == 3

    for folder in (tmp_path / "one", tmp_path / "two"):  # the same words from another folder name another file
        expected = plugin(folder)
        monkeypatch.chdir(folder)
        assert sys.modules[loaded(Path(expected.name))[0].__module__].__file__ == str(expected)


def test_comments_formatting_and_docstrings_are_no_edit(tmp_path: Path, experiment_file: Callable[..., Path]) -> None:
    own = plugin(tmp_path)
    path = experiment_file(plugins=f"[{UNEVEN}, {own}]", methods="[own_rule]")
    first, text = ids(path), own.read_text()
    own.write_text(
        "# mine\n" + text.replace("Equal weights.", "As in the paper.").replace("(self, tasks)", "(self,tasks)")
    )
    assert ids(path) == first
    own.write_text(text.replace('needs = "losses"', 'needs = "gramian"'))
    assert ids(path) != first


def test_an_edited_pipeline_prepares_anew(tmp_path: Path) -> None:
    own = tmp_path / "other_uneven.py"
    text = UNEVEN.read_text().replace('= "uneven"', '= "other_uneven"')
    own.write_text(text)
    load_plugin(own)
    first = prepare("other_uneven", {}, None, tmp_path)
    assert prepare("other_uneven", {}, None, tmp_path) == first == find_prepared("other_uneven", {}, tmp_path)
    own.write_text(f"{text}\n# a comment\n")
    load_plugin(own)
    assert prepare("other_uneven", {}, None, tmp_path) == first
    own.write_text(f"{text}\nEDITED = 1\n")
    load_plugin(own)
    assert find_prepared("other_uneven", {}, tmp_path) is None
    assert prepare("other_uneven", {}, None, tmp_path) != first


def test_a_shipped_name_cannot_be_taken(tmp_path: Path, experiment_file: Callable[..., Path]) -> None:
    own = plugin(tmp_path, name="mgda")
    with pytest.raises(UserError, match=r"mine.py: mgda is a shipped balancer; give yours another name"):
        load_experiment(experiment_file(plugins=f"[{UNEVEN}, {own}]"))


def test_files_and_components_have_names_of_their_own(tmp_path: Path, experiment_file: Callable[..., Path]) -> None:
    one, other = plugin(tmp_path / "a"), plugin(tmp_path / "b", name="other_rule")
    with pytest.raises(UserError, match=r"a/mine.py and .*b/mine.py have the same name; rename one"):
        load_experiment(experiment_file(plugins=f"[{one}, {other}]"))
    third = plugin(tmp_path / "c", file="third.py")
    with pytest.raises(UserError, match=r"a/mine.py and .*c/third.py both define the balancer own_rule"):
        load_experiment(experiment_file(plugins=f"[{one}, {third}]"))
    load_experiment(experiment_file(plugins=f"[{UNEVEN}, {one}, {one}]"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def broken(:\n", r"mine.py:1 cannot be imported: SyntaxError: "),
        ("x = 1\nraise ValueError('no luck\\nat all')\n", r"mine.py:2 cannot be imported: ValueError: no luck$"),
        ("import nothing_of_that_name\n", r"mine.py:1 cannot be imported: ModuleNotFoundError: No module named"),
        ("x = 1\n", r"defines no balancer, architecture, encoder, objective, metric or pipeline"),
    ],
)
def test_what_cannot_be_imported_is_one_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(UserError, match=message) as found:
        load_plugin(tmp_path / "mine.py")
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("value", ["mine.py", "{a: 1}", "[1]"])
def test_plugins_are_a_list_of_files(value: str, experiment_file: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match=r"plugins is a list of files"):
        load_experiment(experiment_file(plugins=value))


def test_a_plugin_is_a_python_file(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x = 1\n")
    with pytest.raises(UserError, match=r"mine.txt is no Python file"):
        load_plugin(tmp_path / "mine.txt")
