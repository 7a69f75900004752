"""The phase before a search: hard sharing on the same labels, whose weights all of the search's encoders start from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import nn

from mtlscale.architectures.contract import MultiTaskModule, staged, start_alike
from mtlscale.architectures.hard.hps import HPSModule
from mtlscale.architectures.phases import Phase, PhaseOutput
from mtlscale.architectures.structure_search import OneLevelSearch
from mtlscale.balancing.losses.equal import Equal
from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.encoders import EncoderModule

_PHASE = "pretrain"
PRETRAINED = "pretrained"  # key of the phase's output


class PretrainingModule(HPSModule):
    """Hard sharing, which hands its weights over to a search."""

    def phase_output(self) -> PhaseOutput:
        state = {"encoder": self.encoder.state_dict(), "heads": [head.state_dict() for head in self.heads]}
        return {PRETRAINED: state}


class SearchModule(MultiTaskModule):
    """Base class of a search's network that may start from pretrained weights."""

    heads: nn.ModuleList

    def start_encoders(self) -> Iterable[nn.Module]:
        """Return every encoder of the network; one may have some of the stages alone."""
        raise NotImplementedError

    def start_from(self, pretrained: Mapping[str, Any]) -> None:
        """Load the weights and statistics of hard sharing into every encoder and into the heads."""
        encoder_state = pretrained["encoder"]
        for encoder in self.start_encoders():
            encoder.load_state_dict({key: encoder_state[key] for key in encoder.state_dict()})
        for head, state in zip(self.heads, pretrained["heads"], strict=True):
            head.load_state_dict(state)


class PretrainedSearch(OneLevelSearch):
    """Base class of searches that may start from hard sharing on the same labels; the retraining never does."""

    heads: str = knob(
        "own", choices=("own", "alike"), help="in the search, heads are drawn apart or start alike", later=True
    )
    pretrain_epochs: int = knob(
        0,
        low=0,
        later=True,
        help="epochs of hard sharing before the search, from which all its encoders and heads start",
    )

    def and_retrain(self, *searches: Phase) -> tuple[Phase, ...]:
        phases = super().and_retrain(*searches)
        if not self.pretrains:
            return phases
        turn = self.turn((), Equal(reduction="sum"))
        first = Phase(name=_PHASE, turns=(turn,), epochs=self.pretrain_epochs, choose="last", seed=self.search_seed)
        return first, *phases

    @property
    def pretrains(self) -> bool:
        return self.pretrain_epochs > 0 and not self.found

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        network: PretrainingModule | SearchModule
        if self.pretrains:
            network = PretrainingModule(suite, staged(encoder(), self.name), dropout)
        else:
            network = self.build_search(suite, encoder, dropout)
        if self.heads == "alike":
            start_alike(network.heads)
        return network

    def build_next(
        self, phase: str, found: PhaseOutput, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float
    ) -> MultiTaskModule:
        if PRETRAINED not in found:
            return self.build_found(phase, found, suite, encoder, dropout)
        if self.found:
            raise UserError(
                f"{self.name}: found is the result of a pretraining; name the file of the search that followed it"
            )
        network = self.build_search(suite, encoder, dropout)
        network.start_from(found[PRETRAINED])
        return network

    def build_search(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> SearchModule:
        """Build the network of the search's first phase."""
        raise NotImplementedError

    def build_found(
        self, phase: str, found: PhaseOutput, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float
    ) -> MultiTaskModule:
        """Build the network of a phase after the search's first one, as `build_next` does."""
        raise NotImplementedError
