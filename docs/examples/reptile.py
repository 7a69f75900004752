from collections.abc import Generator
from typing import ClassVar

import torch

from mtlscale.architectures.hard.hps import HPS
from mtlscale.config import knob
from mtlscale.records import Epoch, RunRecord
from mtlscale.training import Training


class Reptile(HPS):
    """Hard parameter sharing whose parameters go, after each epoch, a share of the way that its steps went."""

    name: ClassVar[str] = "reptile"
    source: ClassVar[str] = "own example, after Nichol et al., 2018"

    rate: float = knob(0.5, low=0.0, high=1.0, open_low=True, search=(0.1, 1.0, "log"), help="share of the way")

    def recipe(self, run: Training) -> Generator[Epoch, None, RunRecord]:
        for session in run.phases():
            for epoch in run.epochs():
                starts = [parameter.detach().clone() for parameter in session.model.parameters()]
                for position, turn in run.turns(epoch):
                    epoch.tallies[position].add(session.step(**turn))
                epoch.close()

                with torch.no_grad():
                    for parameter, start in zip(session.model.parameters(), starts, strict=True):
                        parameter.copy_(start + self.rate * (parameter - start))

                if run.evaluates(epoch):
                    epoch.val = run.evaluate("val")
                    run.choose(epoch)
                yield run.log(epoch)
        return run.record()
