"""A run on tasks that are environments leaves an episode of each to look at, with OpenGL and without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("metaworld")

from mtlscale.config import Experiment, ResourceSpec
from mtlscale.data.readers.prepared import load_prepared
from mtlscale.execution import Job, Options, execute
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.records.events import Event, Noted, RunEnded
from mtlscale.report.charts.vega import save
from mtlscale.rl.environments import (
    CannotRender,
    Episode,
    EpisodeReplay,
    MetaWorld,
    Simulated,
    VectorEnv,
    expert_of,
    rendered,
)
from mtlscale.rl.environments import rendering as rendering
from mtlscale.rl.report.episode_figures import Strip, strip_chart, trajectory_chart
from mtlscale.rl.run_artifacts import frame_steps, hand_trajectory

TASKS = ("reach", "drawer-close")
TITLE = "metaworld, scripted_expert, seed 0"
OPTIONS = {"tasks": list(TASKS), "demonstrations": 10, "horizon": 60, "episodes": 2, "val_episodes": 1}

Play = Callable[[], list[Event]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare("metaworld", OPTIONS, None, tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def told(folder: Path) -> Simulated:
    found = Simulated.of(load_prepared(folder).suite)
    assert found is not None
    return found


# Of the hand; axis and sign in the frame.
DIRECTIONS = (((0, 1, 0), 1, 1), ((0, 0, 1), 0, -1), ((0, 0, -1), 0, 1))


@pytest.fixture(scope="module")
def opengl(told: Simulated) -> list[np.ndarray]:
    """Render a hand that goes in each direction, and a window, in one process: starting it takes longest.

    Skips where this machine cannot render; what a run does there is tested everywhere.
    """
    hands = [
        EpisodeReplay("reach", 0, np.tile([*direction, 0], (40, 1)).astype(float), (0, 40))
        for direction, _, _ in DIRECTIONS
    ]
    try:
        return list(rendered(told, [*hands, EpisodeReplay("window-close", 3, np.zeros((1, 4)), (0, 1))]))
    except CannotRender as error:
        pytest.skip(str(error))


@pytest.fixture
def play(folder: Path, small: Callable[..., Experiment], tmp_path: Path) -> Play:
    """A short run of the scripted expert; what it says."""
    experiment = small(
        plugins="[]",
        datasets="[{name: metaworld, options: {tasks: [reach, drawer-close], demonstrations: 10, horizon: 60, "
        "episodes: 2, val_episodes: 1}}]",
        methods="[scripted_expert]",
        training="{epochs: 1, batch_size: 64}",
    )
    run = next(experiment.runs({"metaworld": load_prepared(folder).manifest.fingerprint}))
    options = Options(ResourceSpec(), storage=f"file://{tmp_path}/shared")
    return lambda: list(execute(Job(run, folder, tmp_path / "home" / "runs" / run.run_id), options))


@pytest.fixture(scope="module")
def experts(told: Simulated) -> list[Episode]:
    """What that run should show: the first test episode of each task, by the experts without any network."""

    def act(tasks: Sequence[str], numbers: Sequence[int], steps: Sequence[int], inputs: np.ndarray) -> np.ndarray:
        seen = inputs[:, :39].astype(float) * np.array(told.std) + np.array(told.mean)
        return np.stack([expert_of(task)(row) for task, row in zip(tasks, seen, strict=True)]).astype(np.float32)

    return VectorEnv(told).play([(task, told.goal("test", 0)) for task in TASKS], act, to_success=True)


def picture(tmp_path: Path) -> bytes:
    """What the run has left, which the storage has, too."""
    [own] = (tmp_path / "home").rglob("episodes.png")
    [stored] = (tmp_path / "shared").rglob("episodes.png")
    assert own.read_bytes() == stored.read_bytes()
    return own.read_bytes()


@pytest.mark.slow
@pytest.mark.usefixtures("opengl")
def test_a_run_leaves_frames_of_an_episode_of_each_task(
    play: Play, told: Simulated, experts: list[Episode], tmp_path: Path
) -> None:
    events = play()
    assert isinstance(events[-1], RunEnded) and events[-1].record.status == "finished"
    assert not [event for event in events if isinstance(event, Noted)]
    steps = [frame_steps(len(episode)) for episode in experts]
    replays = [
        EpisodeReplay(of.task, told.goal("test", 0), of.actions, at) for of, at in zip(experts, steps, strict=True)
    ]
    # The last frame is what there is to see when the episode ends, whatever was rendered before.
    others = [
        EpisodeReplay("reach", replays[0].goal, experts[0].actions, (len(experts[0]),)),
        EpisodeReplay("reach", replays[0].goal + 1, experts[0].actions, (0,)),
    ]
    [last], [other], *frames = rendered(told, [*others, *replays])
    strips = [
        Strip(task=of.task, success=of.success, steps=len(of), frames=found, shown=at)
        for of, found, at in zip(experts, frames, steps, strict=True)
    ]
    assert [found.shape for found in frames] == [(6, 240, 240, 3)] * 2
    assert np.array_equal(last, frames[0][-1]) and not np.array_equal(frames[0][0], frames[0][-1])
    assert not np.array_equal(other, frames[0][0])  # places are those of the seed
    assert picture(tmp_path) == save([strip_chart(strips, TITLE)], tmp_path / "expected.png").read_bytes()


def test_without_opengl_a_run_ends_as_before_with_a_note_and_trajectories(
    play: Play, told: Simulated, experts: list[Episode], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(rendering.BACKEND, "disable")  # MuJoCo's own word for it
    events = play()
    assert isinstance(events[-1], RunEnded) and events[-1].record.status == "finished"
    assert events[-1].record.metrics["test"]["reach"]["success"] == 100.0
    [note] = [event.text for event in events if isinstance(event, Noted)]
    assert note.startswith("episodes.png shows trajectories of the hand, not frames") and "disable" in note
    assert "apt install libegl1" in note
    expected = trajectory_chart([hand_trajectory(told, episode) for episode in experts], TITLE)
    assert picture(tmp_path) == save([expected], tmp_path / "expected.png").read_bytes()
    assert [panel.title for panel in expected.panels] == [
        f"reach: success after {len(experts[0])} steps",
        "drawer-close: no success in 60 steps",  # that many are too few for it
    ]


def test_a_trajectory_is_where_hand_and_goal_are_in_metres(told: Simulated, experts: list[Episode]) -> None:
    [reach, _] = experts
    world = MetaWorld("reach")
    seen = [world.reset(told.goal("test", 0))]
    seen += [world.step(action.astype(float))[0] for action in reach.actions]
    found = hand_trajectory(told, reach)
    assert found.hand == pytest.approx(np.array(seen)[:, :3], abs=1e-5) and len(found.hand) == found.steps + 1
    assert found.goal == pytest.approx(seen[-1][36:], abs=1e-5)
    assert found.success and np.linalg.norm(found.hand[-1] - found.goal) <= 0.05 + 1e-5  # metaworld's own bound


def arm(frame: np.ndarray) -> np.ndarray:
    """Row and column of the middle of what is red."""
    red, green, blue = np.moveaxis(frame.astype(int), -1, 0)
    return np.argwhere((red > 90) & (green < 60) & (blue < 60)).mean(0)


def test_frames_stand_upright_and_are_no_mirror_image(opengl: list[np.ndarray]) -> None:
    """The camera stands to the arm's right: what is farther from the arm's foot is farther to the right."""
    for (direction, axis, sign), (before, after) in zip(DIRECTIONS, opengl[:-1], strict=True):
        assert sign * (arm(after) - arm(before))[axis] > 3, direction


def test_the_first_frame_has_everything_where_the_episode_has_it(opengl: list[np.ndarray]) -> None:
    """What `reset` moves is drawn where it has been moved to: here the window, by 0.2 m."""
    first, after = opengl[-1]
    assert (np.abs(first.astype(int) - after).max(-1) > 40).sum() < 300  # pixels; 700 where it jumps


def test_a_driver_that_hangs_holds_up_nobody(told: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "_SECONDS", 0.05)
    monkeypatch.setattr(rendering, "_SECONDS_EACH", 0.0)
    with pytest.raises(CannotRender, match="took more than"):
        rendered(told, [EpisodeReplay("reach", 0, np.zeros((1, 4)), (0,))])


@pytest.mark.parametrize(
    ("variables", "platform", "found"),
    [
        ({}, "linux", ("egl", "osmesa")),
        ({"DISPLAY": ":0"}, "linux", (None, "egl", "osmesa")),
        ({"MUJOCO_GL": "osmesa", "DISPLAY": ":0"}, "linux", ("osmesa",)),
        ({}, "darwin", (None,)),
    ],
)
def test_what_the_user_says_counts_then_the_screen_then_none(
    variables: dict[str, str], platform: str, found: tuple[str | None, ...]
) -> None:
    assert rendering.backends(variables, platform) == found


def test_frames_are_evenly_spaced_from_start_to_end_each_once() -> None:
    assert frame_steps(60) == (0, 12, 24, 36, 48, 60)
    assert frame_steps(43) == (0, 9, 17, 26, 34, 43)
    assert frame_steps(2) == (0, 1, 2) and frame_steps(1) == (0, 1)
