"""The base of methods that search for a structure and then train it from scratch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mtlscale.architectures.contract import Architecture
from mtlscale.architectures.phases import OptimizerSpec, Phase, Share, Turn
from mtlscale.balancing import Balancer
from mtlscale.balancing.losses.equal import Equal
from mtlscale.config import knob

WEIGHTS, CHOICE = "weights", "architecture"  # the groups of a search's network, and the turns that move them


class OneLevelSearch(Architecture):
    """Base class of these methods, with the settings of the search.

    A search has its own balancer, no objective, and by default its own seed, so that it runs once for all runs that
    differ in these.
    """

    search_epochs: int | None = knob(None, low=1, help="epochs of the search; none: the run's")
    search_seed: int | None = knob(0, low=0, help="seed of the search; none: the run's")
    search_lr: float | None = knob(
        None, low=0, open_low=True, help="learning rate of the weights in the search; none: the run's"
    )
    search_batch: int | None = knob(None, low=1, help="batch size of the search; none: the run's", later=True)
    found: str | None = knob(None, file=True, help="file of a search's result to train at once; none: search")

    def turn(self, groups: tuple[str, ...], balancer: Balancer, share: Share = "whole", name: str = "main") -> Turn:
        """Return a turn by the run's optimiser, at the search's learning rate.

        Args:
            groups: Names of the parameter groups that it moves.
            share: Share of the training samples that it uses.
        """
        training = {} if self.search_lr is None else {"lr": self.search_lr}
        optimizer = OptimizerSpec(training=training)
        return Turn(name=name, share=share, groups=groups, balancer=balancer, objective=False, optimizer=optimizer)

    def search_phase(
        self, turns: Sequence[Turn], name: str = "search", epochs: int | None = None, parts: int = 1
    ) -> Phase:
        """Return a phase of the search, which hands over what its last epoch has arrived at.

        Args:
            turns: The updates of each step.
            epochs: Number of epochs; None: those of the search.
            parts: Number of phases that divide the epochs of the search among them.
        """
        return Phase(
            name=name,
            turns=tuple(turns),
            epochs=epochs or self.search_epochs,
            parts=parts,
            choose="last",
            batch_size=self.search_batch,
            seed=self.search_seed,
            main=WEIGHTS if any(turn.name == WEIGHTS for turn in turns) else "",
        )

    def and_retrain(self, *searches: Phase) -> tuple[Phase, ...]:
        """Return these phases, unless their result is given, and the training from scratch by the run's settings."""
        return (*(() if self.found else searches), Phase(name="retrain"))


class Search(OneLevelSearch):
    """Base class of searches in which weights and architecture parameters learn in turns.

    Each turn has its own half of the training data; the network has the groups "weights" and "architecture".
    """

    arch_lr: float | None = knob(
        None, low=0, open_low=True, help="learning rate of the optimiser that chooses; none: half of the weights'"
    )
    arch_weight_decay: float | None = knob(None, low=0, help="weight decay of that optimiser; none: the run's")
    arch_optimizer: str = knob("adam", choices=("adam", "adamw", "sgd"), help="the optimiser that chooses", later=True)

    def weights_turn(self, balancer: Balancer, share: Share = "first") -> Turn:
        """Return the turn of the weights, by the run's optimiser."""
        return self.turn((WEIGHTS,), balancer, share, WEIGHTS)

    def choice_turn(self, share: Share = "second") -> Turn:
        """Return the turn of the architecture parameters, by an optimiser of its own on the sum of the losses."""
        training: dict[str, Any] = {"optimizer": self.arch_optimizer}

        lr = self.arch_lr or (None if self.search_lr is None else self.search_lr / 2)
        if lr is not None:
            training["lr"] = lr
        if self.arch_weight_decay is not None:
            training["weight_decay"] = self.arch_weight_decay

        return Turn(
            name=CHOICE,
            share=share,
            groups=(CHOICE,),
            balancer=Equal(reduction="sum"),
            objective=False,
            optimizer=OptimizerSpec(training=training, lr_factor=1.0 if lr is not None else 0.5),
        )


def shares_of(levels: str) -> tuple[Share, Share]:
    """Return the shares of the training data of the turn that chooses and of the weights' turn.

    Args:
        levels: "bi", a half for each, or "single", all of the data for both.
    """
    return ("second", "first") if levels == "bi" else ("whole", "whole")
