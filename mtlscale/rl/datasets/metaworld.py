"""Meta-World: manipulation tasks of one robot arm, each an environment, with demonstrations by its scripted expert."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from mtlscale.config import SPLITS, Task, TaskSuite, UserError, knob, named_files
from mtlscale.rl.datasets._demonstrations import Demonstrations, EpisodeMaker, from_file
from mtlscale.rl.environments import (
    ACTIONS,
    EXTRA,
    Simulated,
    check_package,
    check_reward_version,
    check_task_name,
    episode_seed,
)
from pipelines import Vectors, vector_tables
from pipelines.contract import Pipeline, PrepareContext, Prepared

MT10 = (
    "reach",
    "push",
    "pick-place",
    "door-open",
    "drawer-open",
    "drawer-close",
    "button-press-topdown",
    "peg-insert-side",
    "window-open",
    "window-close",
)
MIN_DEVIATION = 1e-3  # least standard deviation: a number that hardly varies in demonstrations may vary in an episode
HELD_OUT_FRACTION = 0.1  # share of the episodes for val, and for test


class MetaWorld(Pipeline):
    """Meta-World: MT10 or other tasks of the package `metaworld`, each an environment, measured by `success`.

    `success` is the share of a task's episodes in which the policy succeeds. `pip install 'mtlscale[rl]'` installs the
    package.

    Samples are the observations and actions of the package's scripted experts, or a Parquet file of demonstrations with
    the columns `task`, `episode`, `step`, `observation` (39 numbers) and `action` (4). They serve for behaviour cloning
    and for the scale of the inputs. Whole episodes go to one split. Inputs are normalised by the training samples.
    """

    name: ClassVar[str] = "metaworld"
    source: ClassVar[str] = "Yu et al., CoRL 2019; the package metaworld (McLean et al. 2025)"
    needs_source: ClassVar[bool] = False
    made_in_seconds: ClassVar[bool] = False  # experts play hundreds of episodes
    delta: ClassVar[tuple[str, ...]] = ("success",)

    tasks: tuple[str, ...] = knob(MT10, help="names of tasks, as the package has them without -v3")
    reward_version: str = knob("v2", help="of the package's rewards, v1 or v2: returns and SAC depend on it")
    positions: str = knob(
        "random", choices=("random", "fixed"), help="where things lie: drawn for each episode, or the same in all"
    )
    horizon: int = knob(150, low=1, high=500, help="steps of an episode")
    task_id: bool = knob(True, help="whether inputs end with a one-hot vector of the task")
    demonstrations: int = knob(20, low=10, help="episodes of the expert for each task, a tenth each for val and test")
    noise: float = knob(
        0.0, low=0.0, help="deviation of what is added to the expert's actions on the way, not to labels"
    )
    file: str | None = knob(None, file=True, help="Parquet file of demonstrations; none: the experts play them")
    episodes: int = knob(10, low=1, help="episodes of each task that a policy is tested by")
    val_episodes: int = knob(5, low=1, help="the same for validation")
    seed: int = knob(0, low=0, help="of the places, in demonstrations and in tests")

    def options(self) -> dict[str, Any]:
        """Return the options, with a file identified by its content."""
        options = super().options()
        return (
            options
            if self.file is None
            else named_files.identity(options | {"file": named_files.with_content_hash(self.file)})
        )

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        version = self._checked()
        demonstrations = (
            self._played(context) if self.file is None else from_file(self.name, Path(self.file), self.tasks)
        )
        samples = {task: self._split(task, demonstrations[task]) for task in self.tasks}

        train = np.concatenate([task_vectors.features[task_vectors.rows["train"]] for task_vectors in samples.values()])
        mean = np.round(train.mean(0), 6)
        std = np.round(np.where(train.std(0) < MIN_DEVIATION, 1.0, train.std(0)), 6)

        simulated = Simulated(
            version=version,
            reward_version=self.reward_version,
            positions=self.positions,
            horizon=self.horizon,
            tasks=tuple(self.tasks),
            task_id=self.task_id,
            mean=tuple(mean.tolist()),
            std=tuple(std.tolist()),
            episodes={"val": self.val_episodes, "test": self.episodes},
            seed=self.seed,
        )
        samples = {task: _as_inputs(simulated, task, vectors) for task, vectors in samples.items()}

        suite = TaskSuite(
            name=self.name,
            tasks=tuple(
                Task(name=task, loss="mse", outputs=ACTIONS, metrics=("success", "mse")) for task in self.tasks
            ),
            inputs="per_task",
            input_kind="vector",
            input_shape=(simulated.inputs,),
            extras={EXTRA: simulated.as_extra()},
        )

        counts = {
            task: {"episodes": recorded.episodes, "solved": recorded.solved}
            for task, recorded in demonstrations.items()
        }
        return Prepared(
            suite,
            vector_tables(samples),
            target_shapes=dict.fromkeys(self.tasks, (ACTIONS,)),
            notes={"demonstrations": counts},
        )

    def _checked(self) -> str:
        """Return the package's version; raise `UserError` for tasks and rewards that it lacks."""
        version = check_package()
        for task in self.tasks:
            check_task_name(task)
        if not self.tasks or len(set(self.tasks)) < len(self.tasks):
            raise UserError("metaworld: tasks are none, or one of them twice; name each once")
        check_reward_version(self.reward_version)
        return version

    def _played(self, context: PrepareContext) -> dict[str, Demonstrations]:
        """Let the experts play their demonstrations, each episode in any process."""
        episode_keys = [(task, number) for task in self.tasks for number in range(self.demonstrations)]
        goals = [
            self.seed if self.positions == "fixed" else episode_seed(self.seed, "demonstration", *episode_key)
            for episode_key in episode_keys
        ]

        table = pa.table(
            {
                "task": [task for task, _ in episode_keys],
                "episode": [number for _, number in episode_keys],
                "goal": goals,
            }
        )
        arguments = (self.reward_version, self.horizon, self.noise)
        tables = [table.slice(first, self.demonstrations) for first in range(0, len(table), self.demonstrations)]

        episodes = []
        with closing(context.held(EpisodeMaker, arguments, tables, None if context.engine == "ray" else 1)) as results:
            for count, result in enumerate(results, 1):
                episodes.append(result)
                context.progress("demonstrations", count, len(tables))

        return Demonstrations.by_task(pa.concat_tables(episodes), self.tasks)

    def _split(self, task: str, demonstrations: Demonstrations) -> Vectors:
        """Return every step as a sample; whole episodes are in one split."""
        held_out = max(1, round(HELD_OUT_FRACTION * demonstrations.episodes))
        if demonstrations.episodes < 2 * held_out + 1:
            raise UserError(f"metaworld: {task} has {demonstrations.episodes} episodes; three are the least")

        split_codes = np.full(demonstrations.episodes, SPLITS.index("train"))
        order = np.argsort([episode_seed("split", task, number) for number in range(demonstrations.episodes)])
        split_codes[order[:held_out]], split_codes[order[held_out : 2 * held_out]] = (
            SPLITS.index("val"),
            SPLITS.index("test"),
        )

        rows = {name: np.flatnonzero(split_codes[demonstrations.episode] == code) for code, name in enumerate(SPLITS)}
        ids = np.array(
            [
                f"{task}/{episode:05d}/{step:03d}"
                for episode, step in zip(demonstrations.episode, demonstrations.step, strict=True)
            ]
        )
        return Vectors(ids, demonstrations.observations, demonstrations.actions, rows)


def _as_inputs(simulated: Simulated, task: str, vectors: Vectors) -> Vectors:
    inputs = simulated.input([task] * len(vectors.ids), vectors.features)
    return Vectors(vectors.ids, inputs, vectors.targets.astype(np.float32), vectors.rows)
