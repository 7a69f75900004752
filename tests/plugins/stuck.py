"""A balancer that hangs in its first process, for tests of time-outs."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import ClassVar

from torch import Tensor

from mtlscale.balancing import Balancer, State
from mtlscale.config import knob


class Stuck(Balancer):
    """Equal weights, and a first call outside the driver that never returns unless the file `mark` is there."""

    name: ClassVar[str] = "stuck"
    needs: ClassVar = "losses"

    mark: str = knob("", help="file that the first call leaves")
    always: bool = knob(False, help="hang in every worker")
    driver: int = knob(0, help="process that tries the balancer before it starts workers")

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        mark = Path(self.mark)
        if os.getpid() != self.driver and (self.always or not mark.exists()):
            mark.touch()
            while True:
                time.sleep(60)
        return losses.new_full(losses.shape, 1 / losses.shape[-1]), state
