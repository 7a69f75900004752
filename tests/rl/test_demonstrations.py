"""Meta-World: demonstrations of its experts, or of a file, as samples whose inputs an environment gives, too."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from mtlscale.config import SPLITS, UserError, load_experiment
from mtlscale.data.readers.prepared import PreparedData, load_prepared, read_ids, read_manifest
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.rl.datasets._demonstrations import EpisodeMaker
from mtlscale.rl.environments import ACTIONS, OBSERVATIONS, MetaWorld, Simulated, episode_seed, expert_of

pytest.importorskip("metaworld")

TASKS = ("reach", "drawer-close")
EPISODES = 10
OPTIONS: dict[str, Any] = {"tasks": TASKS, "demonstrations": EPISODES, "horizon": 90, "episodes": 3, "val_episodes": 2}
SHORT: dict[str, Any] = {"tasks": ("reach",), "demonstrations": EPISODES, "horizon": 4}


def made(home: Path, **options: Any) -> PreparedData:
    return load_prepared(prepare("metaworld", options, None, home, engine="local"))


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def simulated_of(data: PreparedData) -> Simulated:
    found = Simulated.of(data.suite)
    assert found is not None
    return found


def seen(data: PreparedData, split: str, task: str) -> np.ndarray:
    """Observations [n, 39] as they were before they were normalised."""
    told = simulated_of(data)
    inputs = data.splits[split][task].inputs.double().numpy()[:, :OBSERVATIONS]
    return np.asarray(inputs * np.array(told.std) + np.array(told.mean))


def episodes(data: PreparedData, task: str) -> dict[str, np.ndarray]:
    """What was seen in each episode [steps, 39], whatever split it is in."""
    found: dict[str, list[np.ndarray]] = {}
    for split in SPLITS:
        for id, row in zip(read_ids(data.folder, split, task), seen(data, split, task), strict=True):
            found.setdefault(id.split("/")[1], []).append(row)
    return {name: np.stack(rows) for name, rows in sorted(found.items())}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def data(home: Path) -> PreparedData:
    return made(home, **OPTIONS)


# -- samples -------------------------------------------------------------------------------------------------------


def test_a_task_is_an_environment_measured_by_its_episodes(data: PreparedData) -> None:
    assert [task.name for task in data.suite.tasks] == list(TASKS)
    assert {(task.loss, task.outputs, task.metrics) for task in data.suite.tasks} == {("mse", 4, ("success", "mse"))}
    told = simulated_of(data)
    assert data.suite.input_shape == (told.inputs,) == (OBSERVATIONS + len(TASKS),)
    assert (told.horizon, told.reward_version, told.positions, told.seed) == (90, "v2", "random", 0)
    assert told.episodes == {"val": 2, "test": 3}


def test_inputs_are_normalised_by_the_training_samples_and_end_with_the_task(data: PreparedData) -> None:
    train = np.concatenate([data.splits["train"][task].inputs.numpy() for task in TASKS])[:, :OBSERVATIONS]
    moves = np.array(simulated_of(data).std) != 1.0
    assert moves.sum() >= 15
    np.testing.assert_allclose(train.mean(0), 0.0, atol=1e-3)
    np.testing.assert_allclose(train.std(0)[moves], 1.0, atol=1e-3)
    assert train.std(0)[~moves].max() < 2e-3  # what hardly moves is not blown up
    for split in SPLITS:
        for place, task in enumerate(TASKS):
            ends = data.splits[split][task].inputs.numpy()[:, OBSERVATIONS:]
            assert np.array_equal(ends, np.tile(np.eye(len(TASKS))[place], (len(ends), 1)))


def test_an_episodes_first_input_is_that_of_its_world(data: PreparedData) -> None:
    """What cloning learns from and what a policy is shown are normalised alike."""
    told = simulated_of(data)
    train = {row.tobytes() for row in data.splits["train"]["reach"].inputs.numpy()}
    world, expert, met = MetaWorld("reach"), expert_of("reach"), 0
    for number in range(EPISODES):
        observation = world.reset(episode_seed(0, "demonstration", "reach", number))
        for _ in range(3):
            met += told.input(["reach"], observation[None])[0].tobytes() in train
            observation, _, _ = world.step(expert(observation))
    assert met == 3 * 8  # episodes of the training split


def test_whole_episodes_go_to_one_split(data: PreparedData) -> None:
    for task in TASKS:
        of = {}
        for split, count in zip(SPLITS, (8, 1, 1), strict=True):
            ids = [id.split("/") for id in read_ids(data.folder, split, task)]
            assert {id[0] for id in ids} == {task}
            of[split] = {id[1] for id in ids}
            assert len(of[split]) == count
            for episode in of[split]:
                steps = [int(id[2]) for id in ids if id[1] == episode]
                assert steps == list(range(len(steps)))
        assert len(set().union(*of.values())) == EPISODES


@pytest.mark.parametrize("noise", [0.0, 0.6])
def test_labels_are_what_the_expert_does_where_it_is(noise: float, data: PreparedData, home: Path) -> None:
    noisy = made(home, **{**OPTIONS, "tasks": ("reach",), "noise": noise})
    expert = expert_of("reach")
    for split in SPLITS:
        labels = noisy.splits[split]["reach"].targets["reach"].numpy()
        assert labels.shape[1] == ACTIONS
        wanted = np.stack([expert(row) for row in seen(noisy, split, "reach")])
        np.testing.assert_allclose(labels, wanted, atol=1e-4)
    ways = [episodes(one, "reach") for one in (data, noisy)]
    for clean, other in zip(*(way.values() for way in ways), strict=True):
        np.testing.assert_allclose(clean[0], other[0], atol=1e-6)  # the same places
        steps = min(len(clean), len(other))
        assert (np.abs(clean[:steps] - other[:steps]).max() > 0.01) == (noise > 0)


def test_an_episode_ends_some_steps_after_its_first_success(data: PreparedData, home: Path) -> None:
    assert data.manifest.notes["demonstrations"] == {task: {"episodes": EPISODES, "solved": EPISODES} for task in TASKS}
    lengths = [len(rows) for rows in episodes(data, "reach").values()]
    assert max(lengths) < 90 and len(set(lengths)) > 1
    unsolved = made(home, **SHORT)
    assert unsolved.manifest.notes["demonstrations"]["reach"]["solved"] == 0
    assert {len(rows) for rows in episodes(unsolved, "reach").values()} == {4}


def test_fixed_positions_begin_every_episode_alike_and_noise_tells_them_apart(data: PreparedData, home: Path) -> None:
    begun = np.stack([rows[0] for rows in episodes(data, "reach").values()])
    assert len(np.unique(begun.round(6), axis=0)) == EPISODES
    fixed = episodes(made(home, **SHORT, positions="fixed", noise=0.5), "reach")
    assert len(np.unique(np.stack([rows[0] for rows in fixed.values()]).round(6), axis=0)) == 1
    assert len(np.unique(np.stack([rows[-1] for rows in fixed.values()]).round(6), axis=0)) == EPISODES


def test_without_a_task_id_inputs_are_observations(home: Path) -> None:
    with_id, without = (made(home, **SHORT, task_id=asked) for asked in (True, False))
    assert without.suite.input_shape == (OBSERVATIONS,)
    for split in SPLITS:
        inputs = with_id.splits[split]["reach"].inputs[:, :OBSERVATIONS]
        assert np.array_equal(without.splits[split]["reach"].inputs.numpy(), inputs.numpy())


# -- what tells one preparation from another -----------------------------------------------------------------------


def test_prepared_twice_is_the_same_and_every_option_that_counts_makes_another(home: Path, tmp_path: Path) -> None:
    first = prepare("metaworld", SHORT, None, home, engine="local")
    assert content(prepare("metaworld", SHORT, None, tmp_path, engine="local")) == content(first)
    changed = [{"seed": 1}, {"reward_version": "v1"}, {"horizon": 3}, {"positions": "fixed"}, {"episodes": 11}]
    folders = [prepare("metaworld", {**SHORT, **option}, None, home, engine="local") for option in changed]
    assert len({first, *folders}) == 6
    told = [simulated_of(load_prepared(folder)) for folder in (first, *folders)]
    assert len({str(one.as_extra()) for one in told}) == 6
    fingerprints = [read_manifest(folder).fingerprint for folder in (first, folders[0], folders[2], folders[3])]
    assert len(set(fingerprints)) == 4


def test_a_run_is_of_the_rewards_and_the_seed_of_its_set(tmp_path: Path) -> None:
    ids = set()
    for option in ("seed: 0", "seed: 1", "reward_version: v1", "horizon: 100", "episodes: 20"):
        file = tmp_path / "one.yaml"
        entry = f"datasets: [{{name: metaworld, label: arms, options: {{{option}}}}}]"
        file.write_text(f"name: one\n{entry}\nmethods: [equal]\nfloors: []\nseeds: [0]\n")
        [run] = load_experiment(file).runs({"arms": "the same data"})
        ids.add(run.run_id)
    assert len(ids) == 5


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_ray_gives_the_bytes_of_this_process(home: Path, tmp_path: Path) -> None:
    options = {**SHORT, "tasks": ("reach", "push"), "noise": 0.2}
    local = prepare("metaworld", options, None, home, engine="local")
    assert content(prepare("metaworld", options, None, tmp_path, engine="ray")) == content(local)


# -- a file of demonstrations --------------------------------------------------------------------------------------


def table(tasks: tuple[str, ...] = ("reach", "push"), count: int = EPISODES, steps: int = 3) -> pa.Table:
    rng = np.random.default_rng(2)
    rows = [(task, episode, step) for task in tasks for episode in range(count) for step in range(steps)]
    return pa.table(
        {
            "task": [row[0] for row in rows],
            "episode": [row[1] for row in rows],
            "step": [row[2] for row in rows],
            "observation": list(rng.normal(size=(len(rows), OBSERVATIONS))),
            "action": list(rng.uniform(-1.0, 1.0, (len(rows), ACTIONS))),
        }
    )


def with_column(content: pa.Table, name: str, change: Callable[[list[Any]], Any]) -> pa.Table:
    values = content[name].to_pylist()
    return content.set_column(content.column_names.index(name), name, [change(values)])


def put(values: list[Any], row: int, place: int, value: float | None) -> list[Any]:
    values[row][place] = value
    return values


def from_table(content: pa.Table, tmp_path: Path, **options: Any) -> PreparedData:
    path = tmp_path / "shown.parquet"
    pq.write_table(content, path)
    return made(tmp_path / "home", **{"tasks": ("reach", "push"), "file": str(path), **options})


def test_a_file_of_what_the_experts_did_is_what_they_do(data: PreparedData, tmp_path: Path) -> None:
    orders = [(task, number) for task in reversed(TASKS) for number in range(EPISODES)]
    goals = [episode_seed(0, "demonstration", task, number) for task, number in orders]
    asked = {"task": [task for task, _ in orders], "episode": [number for _, number in orders], "goal": goals}
    shown = EpisodeMaker("v2", 90, 0.0)(pa.table(asked))
    again = from_table(shown.take(np.random.default_rng(0).permutation(len(shown))), tmp_path, tasks=TASKS)
    assert again.manifest.fingerprint == data.manifest.fingerprint
    assert simulated_of(again).mean == simulated_of(data).mean


@pytest.mark.parametrize("kind", ["lists", "large lists", "fixed-size lists of 32 bits"])
def test_observations_and_actions_are_lists_of_any_kind(kind: str, tmp_path: Path) -> None:
    content = table()
    types = {
        "lists": lambda size: pa.list_(pa.float64()),
        "large lists": lambda size: pa.large_list(pa.float64()),
        "fixed-size lists of 32 bits": lambda size: pa.list_(pa.float32(), size),
    }
    for name, size in (("observation", OBSERVATIONS), ("action", ACTIONS)):
        column = pa.array(content[name].to_pylist(), types[kind](size))
        content = content.set_column(content.column_names.index(name), name, column)
    found = from_table(content, tmp_path)
    rows = {(task, ep, st): row for task, ep, st, row in zip(*(content[c].to_pylist() for c in (
        "task", "episode", "step", "observation")), strict=True)}  # fmt: skip
    for task in ("reach", "push"):
        for split in SPLITS:
            ids = [id.split("/") for id in read_ids(found.folder, split, task)]
            wanted = np.array([rows[task, int(id[1]), int(id[2])] for id in ids])
            np.testing.assert_allclose(seen(found, split, task), wanted, atol=1e-5)


def test_a_file_counts_by_what_it_holds(tmp_path: Path) -> None:
    first = from_table(table(), tmp_path)
    other = from_table(with_column(table(), "action", lambda values: put(values, 0, 0, 0.123)), tmp_path)
    assert first.folder != other.folder
    assert first.manifest.fingerprint != other.manifest.fingerprint
    (tmp_path / "shown.parquet").rename(tmp_path / "moved.parquet")
    moved = made(tmp_path / "home", tasks=("reach", "push"), file=str(tmp_path / "moved.parquet"))
    assert moved.folder == other.folder


def test_a_file_lies_beside_the_experiment(tmp_path: Path) -> None:
    pq.write_table(table(), tmp_path / "shown.parquet")
    file = tmp_path / "one.yaml"
    entry = "datasets: [{name: metaworld, options: {tasks: [reach, push], file: shown.parquet}}]"
    file.write_text(f"name: one\n{entry}\nmethods: [equal]\n")
    [(dataset, seed)] = load_experiment(file).data().values()
    assert dataset.build(seed).file == str(tmp_path / "shown.parquet")


BAD: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "a column is missing": (
        lambda t: t.drop_columns("step"),
        "shown.parquet has no column 'step'; it needs task, episode, step, observation, action",
    ),
    "another task": (
        lambda t: t.filter(pc.equal(t["task"], "reach")),
        "shown.parquet has no demonstration of push, but of reach; set `tasks`",
    ),
    "actions of another size": (
        lambda t: with_column(t, "action", lambda values: [value[:3] for value in values]),
        r"column action holds \[3\] numbers a step, the tasks have 4",
    ),
    "observations of several sizes": (
        lambda t: with_column(t, "observation", lambda values: [values[0][:38], *values[1:]]),
        r"column observation holds \[38, 39\] numbers a step, the tasks have 39",
    ),
    "an observation that is none": (
        lambda t: with_column(t, "observation", lambda values: put(values, 37, 5, np.nan)),
        "push, episode 2, step 1 has a number that is none; leave the episode out",
    ),
    "an observation that is empty": (
        lambda t: with_column(t, "observation", lambda values: put(values, 4, 0, None)),
        "reach, episode 1, step 1 has a number that is none",
    ),
    "an action that is infinite": (
        lambda t: with_column(t, "action", lambda values: put(values, 2, 3, np.inf)),
        "reach, episode 0, step 2 has a number that is none",
    ),
    "actions beyond the bounds": (
        lambda t: with_column(t, "action", lambda values: put(values, 45, 3, -1.01)),
        r"push has actions outside \[-1, 1\]; clip them",
    ),
    "steps that are no whole numbers": (
        lambda t: with_column(t, "step", lambda values: [float(value) for value in values]),
        "column step holds values of type double; it should hold whole numbers",
    ),
    "a step that is missing": (
        lambda t: with_column(t, "step", lambda values: [None, *values[1:]]),
        "column step holds values of type int64, 1 of them empty",
    ),
    "observations that are texts": (
        lambda t: with_column(t, "observation", lambda values: [str(value) for value in values]),
        "column observation holds values of type string; it should hold lists of numbers",
    ),
    "actions that are lists of texts": (
        lambda t: with_column(t, "action", lambda values: [[str(one) for one in value] for value in values]),
        "column action holds values of type list<.*string>; it should hold lists of numbers",
    ),
    "a step twice": (
        lambda t: with_column(t, "step", lambda values: [0, 0, *values[2:]]),
        "two samples named reach/00000/000; remove one",
    ),
    "too few episodes": (
        lambda t: t.filter(pc.less(t["episode"], 2)),
        "reach has 2 episodes; three are the least",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_with_a_file_is_named(name: str, tmp_path: Path) -> None:
    change, message = BAD[name]
    with pytest.raises(UserError, match=f"^metaworld: .*{message}"):
        from_table(change(table()), tmp_path)
    assert not (tmp_path / "home" / "data" / "metaworld").exists()


def test_no_file_and_no_parquet_are_named(tmp_path: Path) -> None:
    path = tmp_path / "gone.parquet"
    with pytest.raises(UserError, match=r"gone\.parquet"):
        made(tmp_path / "home", tasks=("reach",), file=str(path))
    path.write_text("task,episode\nreach,0\n")
    with pytest.raises(UserError, match=r"^metaworld: gone\.parquet is no Parquet file"):
        made(tmp_path / "home", tasks=("reach",), file=str(path))


# -- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"tasks": ("reach", "pick-plaice")}, "metaworld has no task 'pick-plaice'; did you mean pick-place"),
        ({"tasks": ("reach", "reach")}, "metaworld: tasks are none, or one of them twice; name each once"),
        ({"tasks": ()}, "metaworld: tasks are none"),
        ({"reward_version": "v3"}, "reward_version: metaworld has no 'v3'; it has: v1, v2"),
        ({"demonstrations": 9}, "metaworld: demonstrations = 9 is outside"),
        ({"horizon": 501}, "metaworld: horizon = 501 is outside"),
        ({"positions": "some"}, "metaworld: positions = 'some' is outside"),
    ],
)
def test_what_cannot_be_had(options: dict[str, Any], problem: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"^{problem}"):
        made(tmp_path, **{**SHORT, **options})


def test_without_the_package_the_install_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "mujoco" else find(name, *rest)
    )
    with pytest.raises(UserError, match=r"the package mujoco, not here: pip install 'mtlscale\[rl\]'$"):
        made(tmp_path, **SHORT)
    assert not list(tmp_path.rglob("manifest.json"))
