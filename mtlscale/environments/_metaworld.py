"""Meta-World's environments: one task of it as a world that is stepped, with places drawn from a seed."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from mtlscale.spec import UserError, nearest

REWARD_VERSIONS = ("v1", "v2")
INSTALL = "pip install 'mtlscale[rl]'"
FRAME = 240  # pixels of a frame's height and width
_SUFFIX = "-v3"  # of the package's names
_CAMERA = "corner4"  # the nearest that sees hand and table of every task
Policy = Callable[[np.ndarray], np.ndarray]


def check_package(wanted: str | None = None) -> str:
    """The version of metaworld; `UserError` where the package is missing, or not of the version that data are of."""
    missing = [name for name in ("metaworld", "mujoco", "packaging") if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"tasks of Meta-World are environments of the package {missing[0]}, not here: {INSTALL}")
    from importlib.metadata import version

    found = version("metaworld")
    if wanted is not None and found != wanted:
        raise UserError(
            f"these data are of metaworld {wanted}, here is {found}, whose episodes may differ: pip install "
            f"metaworld=={wanted}"
        )
    return found


def check_reward_version(version: str) -> None:
    """`UserError` where the package has no rewards of that version."""
    if version not in REWARD_VERSIONS:
        raise UserError(f"reward_version: metaworld has no {version!r}; it has: {', '.join(REWARD_VERSIONS)}")


def check_task_name(task: str) -> None:
    """`UserError` with the nearest names where Meta-World has no such task."""
    import metaworld.env_dict as known

    names = [name.removesuffix(_SUFFIX) for name in known.ALL_V3_ENVIRONMENTS]
    if task not in names:
        raise UserError(f"metaworld has no task {task!r}; {nearest(task, names)}")


class MetaWorld:
    """One task: `reset` with a seed of its places, then `step` with actions in [-1, 1]."""

    def __init__(self, task: str, reward_version: str = "v2", render: bool = False) -> None:
        import metaworld.env_dict as known
        from mujoco import mjtWarning as warned

        check_task_name(task)
        self.task = task
        bad = (warned.mjWARN_BADQPOS, warned.mjWARN_BADQVEL, warned.mjWARN_BADQACC, warned.mjWARN_BADCTRL)
        self._unstable = [int(kind) for kind in bad]
        mode = {"render_mode": "rgb_array", "camera_name": _CAMERA, "width": FRAME, "height": FRAME} if render else {}
        self._env: Any = known.ALL_V3_ENVIRONMENTS[task + _SUFFIX](reward_function_version=reward_version, **mode)
        # The package's own way, `set_task`, reads pickles; this is what it comes to.
        self._env._freeze_rand_vec, self._env.seeded_rand_vec = False, True
        self._env._set_task_called, self._env._partially_observable = True, False
        self._env.__dict__.pop("sawyer_observation_space", None)  # which was cached without the goal
        if render:
            self._env.model.vis.quality.shadowsize = 0  # shadows cost three times the rest, where no GPU draws

    def reset(self, seed: int) -> np.ndarray:
        """The first observation [39] of an episode whose places are drawn from the seed."""
        self._env.seed(seed)
        self._env._freeze_rand_vec = False
        self._env.reset()  # draws the places, often twice: some tasks would show those of the first draw once more
        self._env._freeze_rand_vec = True
        found: np.ndarray = self._env.reset()[0]
        return found

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        """Observation [39], reward and whether the task is done; raises where the simulation has broken."""
        observation, reward, _, _, told = self._env.step(action)
        # MuJoCo would begin anew by itself, in places that no seed has drawn, and go on; the package does not look.
        if self._env.data.warning.number[self._unstable].any():
            raise RuntimeError("the physics have become unstable")
        return observation, float(reward), bool(told["success"])

    def frame(self) -> np.ndarray:
        """[FRAME, FRAME, 3] bytes: what a camera beside the table sees. Raises where OpenGL cannot render."""
        import mujoco

        # What `reset` has moved is not yet where it will be seen; unlike a whole `mj_forward`, this leaves what steps
        # begin with alone.
        mujoco.mj_kinematics(self._env.model, self._env.data)
        found: np.ndarray = self._env.render()
        return found[::-1, ::-1]  # the camera hangs upside down: half a turn, no mirror

    def close(self) -> None:
        self._env.close()


def expert_of(task: str) -> Policy:
    """The policy that the package's authors wrote by hand for a task: an observation [39] -> an action [4] in
    [-1, 1]."""
    from metaworld.policies import ENV_POLICY_MAP

    policy: Any = ENV_POLICY_MAP[task + _SUFFIX]()

    def act(observation: np.ndarray) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its gains are "too high" by design
            found = policy.get_action(observation)
        return np.clip(np.asarray(found, dtype=np.float64), -1.0, 1.0)

    return act
