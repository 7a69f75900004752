"""DSMTL, individual learning: single-task learning first, then a public encoder beside the private ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import nn

from mtlscale.architectures.branching._dsmtl import DSMTLModule
from mtlscale.architectures.contract import Architecture, MultiTaskModule
from mtlscale.architectures.hooks import EpochView
from mtlscale.architectures.phases import Phase, PhaseOutput, Turn
from mtlscale.balancing.losses.equal import Equal
from mtlscale.config import TaskSuite, knob
from mtlscale.encoders import EncoderModule

_SPLITS = {"both": ("train", "val"), "train": ("train",), "val": ("val",), "none": ()}


class PrivateModule(DSMTLModule):
    """The network of the first phase: gates of 0, hence single-task learning, for the next phase to take over."""

    def phase_output(self) -> PhaseOutput:
        return {"private": {key: value.detach().clone() for key, value in self.state_dict().items()}}


class PublicModule(DSMTLModule):
    """The network of the second phase: private encoders and heads stay as they are.

    They are in evaluation mode, so that their running statistics stay the same, too. `kept` [T] marks the tasks whose
    gate is in use when the network is evaluated.
    """

    kept: torch.Tensor
    closed: torch.Tensor

    def __init__(
        self,
        suite: TaskSuite,
        encoder: Callable[[], EncoderModule],
        dropout: float,
        private: Mapping[str, torch.Tensor],
        splits: tuple[str, ...],
        **options: Any,
    ) -> None:
        super().__init__(suite, encoder, dropout, **options)
        state = self.state_dict()
        assert private.keys() == {key for key in state if key.split(".")[0] in ("private", "heads")}
        self.load_state_dict({**state, **private})

        for module in self.frozen():
            module.requires_grad_(False)

        self.splits = splits
        self.register_buffer("kept", torch.ones(len(self.names), dtype=torch.bool))
        # The losses with closed gates, which no step changes: NaN until they are known.
        self.register_buffer("closed", torch.full((len(splits), len(self.names)), torch.nan, dtype=torch.float64))
        self.train()

    def frozen(self) -> tuple[nn.Module, ...]:
        return self.private, self.heads

    def train(self, mode: bool = True) -> PublicModule:
        super().train(mode)
        for part in self.frozen():
            part.eval()
        return self

    def open(self, place: int) -> bool:
        return super().open(place) and (self.training or bool(self.kept[place]))

    def before_evaluation(self, epoch: EpochView) -> None:
        """Close the gates that make their task's loss larger than its private network's, on any of the splits."""
        if not self.splits:
            return
        if bool(self.closed.isnan().all()):
            self.kept.fill_(False)
            self.closed.copy_(self._table(epoch.split_losses))
        self.kept.fill_(True)
        # A task without a label in a split has no loss there.
        harmless = (self._table(epoch.split_losses) <= self.closed.cpu()) | self.closed.cpu().isnan()
        self.kept.copy_(harmless.all(0))

    def _table(self, losses: Callable[[str], Mapping[str, float]]) -> torch.Tensor:
        """Return the losses [splits, T]."""
        rows = [[split_losses[name] for name in self.names] for split_losses in map(losses, self.splits)]
        return torch.tensor(rows, dtype=torch.float64)

    def gates(self) -> dict[str, float]:
        """Return the gates by task, 0 for a gate that is closed."""
        kept_by_task = dict(zip(self.names, self.kept.tolist(), strict=True))
        return {name: gate if kept_by_task[name] else 0.0 for name, gate in super().gates().items()}

    def traces(self) -> dict[str, Any]:
        return {"gates": super().gates(), "kept": dict(zip(self.names, self.kept.int().tolist(), strict=True))}


class DSMTLIndividual(Architecture):
    """Deep safe multi-task learning in two phases: single-task learning, then a public encoder and the gates.

    The second phase freezes the encoders and heads of the first. A gate whose task would do better without it is
    closed, and the task's network is then the single-task one to the last bit: no task ends with a larger loss, on
    training data, on validation or, by default, on both.
    """

    name: ClassVar[str] = "dsmtl_il"
    source: ClassVar[str] = "Yue, Ye & Zhang, Deep Safe Multi-Task Learning, arXiv 2021: DSMTL-IL"

    alpha: float | None = knob(
        None,
        low=0.0,
        high=1.0,
        open_low=True,
        open_high=True,
        help="share of the public features, fixed; learned by default",
    )
    after: int | None = knob(None, low=1, help="stage after which features mix; default: the last")
    fallback: str = knob(
        "both", choices=tuple(_SPLITS), help="where a task's gate has to do no harm, else it is closed"
    )
    private_epochs: int | None = knob(None, low=1, help="epochs of the first phase; none: the run's")

    def phases(self) -> tuple[Phase, ...]:
        private = Phase(name="private", epochs=self.private_epochs, turns=(Turn(balancer=Equal(reduction="mean")),))
        return private, Phase(name="public")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return PrivateModule(suite, encoder, dropout, alpha=0.0, after=self.after)

    def build_next(
        self, phase: str, found: PhaseOutput, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float
    ) -> MultiTaskModule:
        splits = _SPLITS[self.fallback]
        return PublicModule(suite, encoder, dropout, found["private"], splits, alpha=self.alpha, after=self.after)
