"""RL environments: the tasks of Meta-World, stepped, with positions drawn from a seed."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from mtlscale.config import UserError, nearest

REWARD_VERSIONS = ("v1", "v2")
INSTALL = "pip install 'mtlscale[rl]'"
FRAME = 240  # pixels of a frame's height and width
_SUFFIX = "-v3"  # of the package's names
_CAMERA = "corner4"  # the nearest that sees hand and table of every task
Policy = Callable[[np.ndarray], np.ndarray]


def check_package(wanted: str | None = None) -> str:
    """Return the version of metaworld.

    Raises:
        UserError: The package is missing, or not of the version that the data come from.
    """
    missing = [name for name in ("metaworld", "mujoco", "packaging") if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"tasks of Meta-World are environments of the package {missing[0]}, not here: {INSTALL}")
    from importlib.metadata import version

    installed = version("metaworld")
    if wanted is not None and installed != wanted:
        raise UserError(
            f"these data are of metaworld {wanted}, here is {installed}, whose episodes may differ: pip install "
            f"metaworld=={wanted}"
        )
    return installed


def check_reward_version(version: str) -> None:
    """Raise `UserError` if the package has no rewards of that version."""
    if version not in REWARD_VERSIONS:
        raise UserError(f"reward_version: metaworld has no {version!r}; it has: {', '.join(REWARD_VERSIONS)}")


def check_task_name(task: str) -> None:
    """Raise `UserError` with the nearest names if Meta-World has no such task."""
    import metaworld.env_dict as known

    names = [name.removesuffix(_SUFFIX) for name in known.ALL_V3_ENVIRONMENTS]
    if task not in names:
        raise UserError(f"metaworld has no task {task!r}; {nearest(task, names)}")


class MetaWorld:
    """World of one task: `reset` with a seed of its positions, then `step` with actions in [-1, 1]."""

    def __init__(self, task: str, reward_version: str = "v2", render: bool = False) -> None:
        import metaworld.env_dict as known
        from mujoco import mjtWarning as warned

        check_task_name(task)
        self.task = task
        unstable_kinds = (warned.mjWARN_BADQPOS, warned.mjWARN_BADQVEL, warned.mjWARN_BADQACC, warned.mjWARN_BADCTRL)
        self._unstable = [int(kind) for kind in unstable_kinds]
        mode = {"render_mode": "rgb_array", "camera_name": _CAMERA, "width": FRAME, "height": FRAME} if render else {}

        self._env: Any = known.ALL_V3_ENVIRONMENTS[task + _SUFFIX](reward_function_version=reward_version, **mode)
        # The package's `set_task` reads pickles; these assignments have the same effect.
        self._env._freeze_rand_vec, self._env.seeded_rand_vec = False, True
        self._env._set_task_called, self._env._partially_observable = True, False
        self._env.__dict__.pop("sawyer_observation_space", None)  # which was cached without the goal

        if render:
            self._env.model.vis.quality.shadowsize = 0  # without a GPU, shadows take three times as long as the rest

    def reset(self, seed: int) -> np.ndarray:
        """Return the first observation [39] of an episode whose initial positions are drawn from the seed."""
        self._env.seed(seed)
        self._env._freeze_rand_vec = False
        self._env.reset()  # draws positions, often twice: some tasks would still show those of the first draw
        self._env._freeze_rand_vec = True
        observation: np.ndarray = self._env.reset()[0]
        return observation

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        """Return observation [39], reward and whether the task is done; raise if the simulation has broken."""
        observation, reward, _, _, info = self._env.step(action)
        # MuJoCo would reset itself to positions that no seed has drawn, and go on; the package does not check for it.
        if self._env.data.warning.number[self._unstable].any():
            raise RuntimeError("the physics have become unstable")
        return observation, float(reward), bool(info["success"])

    def frame(self) -> np.ndarray:
        """Render bytes [FRAME, FRAME, 3] from a camera beside the table; raise if OpenGL cannot render."""
        import mujoco

        # Update the positions of what `reset` has moved before they are drawn; unlike a full `mj_forward`, this does
        # not change the state that steps begin with.
        mujoco.mj_kinematics(self._env.model, self._env.data)

        image: np.ndarray = self._env.render()
        return image[::-1, ::-1]  # the camera is upside down: rotated by half a turn, not mirrored

    def close(self) -> None:
        self._env.close()


def expert_of(task: str) -> Policy:
    """Return the policy that the authors wrote by hand for a task: observation [39] -> action [4] in [-1, 1]."""
    from metaworld.policies import ENV_POLICY_MAP

    policy: Any = ENV_POLICY_MAP[task + _SUFFIX]()

    def act(observation: np.ndarray) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its gains are "too high" by design
            action = policy.get_action(observation)
        return np.clip(np.asarray(action, dtype=np.float64), -1.0, 1.0)

    return act
