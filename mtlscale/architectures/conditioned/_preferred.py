"""The base of networks that are given a preference: the preference, the grid they are measured on, and knobs."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from mtlscale.architectures.contract import Architecture
from mtlscale.architectures.hard.hps import HPSModule
from mtlscale.architectures.hooks import StepView
from mtlscale.config import TaskSuite, knob
from mtlscale.config.preferences import Preference, central, rays
from mtlscale.encoders import EncoderModule


class PreferredModule(HPSModule):
    """A hard parameter sharing network with the preference [T] that it is given, at first equal shares."""

    preference: Tensor

    def __init__(
        self, suite: TaskSuite, encoder: EncoderModule, dropout: float, grid: list[Preference], concentration: float
    ) -> None:
        super().__init__(suite, encoder, dropout)
        self.vectorised = False
        self.grid, self.concentration = grid, concentration
        tasks = len(suite.tasks)
        self.register_buffer("preference", torch.full((tasks,), 1.0 / tasks))

    def set_preference(self, preference: Tensor) -> None:
        """Use this preference [T] in the passes that follow."""
        self.preference.copy_(preference, non_blocking=True)

    def before_step(self, step: StepView) -> None:
        """Draw the preference of this step, a function of seed and step alone, for network and balancer."""
        rng = np.random.default_rng((step.seed, step.number))
        drawn = torch.from_numpy(rng.dirichlet(np.full(len(self.names), self.concentration)))
        self.set_preference(drawn)
        step.hint("preference", drawn)

    def prefer(self, preference: Preference | None = None) -> None:
        chosen = self.grid[central(self.grid)] if preference is None else preference
        self.set_preference(torch.tensor(chosen, dtype=torch.float64))


class PreferredArchitecture(Architecture):
    """Base class of an architecture whose networks are given a preference."""

    draws_preferences: ClassVar[bool] = True

    grid: int = knob(5, low=1, help="even preferences that the trained network is measured for, as `rays`")
    concentration: float = knob(
        1.2, low=0, open_low=True, help="of the Dirichlet distribution that a step's preference is drawn from"
    )

    def preferences(self, suite: TaskSuite) -> list[Preference]:
        """Return the preferences of the grid."""
        return rays(self.name, len(suite.tasks), self.grid)
