"""SAC: soft actor-critic of several tasks, each with its own temperature, on episodes that it collects itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from mtlscale.architectures.contract import Architecture, MultiTaskModule
from mtlscale.architectures.phases import OptimizerSpec, Phase, Turn
from mtlscale.balancing.losses.equal import Equal
from mtlscale.config import TaskSuite, knob
from mtlscale.encoders import EncoderModule
from mtlscale.rl.environments import Simulated
from mtlscale.rl.sac.module import SACModule
from mtlscale.rl.sac.networks import Role, SeparateNetworks, SharedNetwork, TaskNetwork, WithHeads, hidden_of, layers_of
from mtlscale.rl.sac.requirements import environments_of
from mtlscale.rl.sac.sources import ACTOR, CRITICS, TEMPERATURE


class SAC(Architecture):
    """Soft actor-critic of several tasks, in rounds of collecting episodes and learning from them.

    An epoch is a round: episodes of every task are played with the current policy, then `training.steps_per_epoch`
    updates of critics, actor and temperatures follow, on transitions drawn from all rounds.

    The run's balancer combines the tasks' losses, of the critics and of the actor alike. Actor and critics have the
    hidden layers of the encoder, which is `mlp`. The set's samples, demonstrations, give the scale of its inputs and
    nothing else. The last policy is the one that is tested.
    """

    name: ClassVar[str] = "sac"
    source: ClassVar[str] = "Haarnoja et al. 2018 (arXiv 1812.05905); of several tasks: Yu et al., CoRL 2019"

    sharing: str = knob(
        "heads",
        choices=("heads", "whole", "none"),
        help="an output layer for each task; everything, the task known by its one-hot vector; or a network for each",
    )
    discount: float = knob(0.99, low=0.0, high=1.0, open_high=True, help="γ")
    follow: float = knob(0.005, low=0.0, high=1.0, open_low=True, help="τ, how fast the critics' targets follow them")
    temperature: float = knob(0.1, low=0.0, open_low=True, help="α of every task at the start")
    temperature_lr: float | None = knob(None, low=0.0, help="learning rate of the temperatures; none: the run's")
    reward_scale: float = knob(1.0, low=0.0, open_low=True, help="what rewards are multiplied by")
    replay: int = knob(1_000_000, low=1, help="transitions of each task that are kept")
    replay_batch: int = knob(128, low=1, help="transitions of each task in an update")
    first_episodes: int = knob(10, low=1, help="episodes of each task with random actions, before the first update")
    round_episodes: int = knob(1, low=1, help="episodes of each task in every later round")

    def phases(self) -> tuple[Phase, ...]:
        return (self.phase(),)

    def phase(self, name: str = "train", epochs: int | None = None, before: tuple[Turn, ...] = ()) -> Phase:
        """Return a phase of rounds of collecting and learning.

        Args:
            epochs: Number of rounds; None: the run's epochs.
            before: Turns with which each step begins.
        """
        temperature_training = {} if self.temperature_lr is None else {"lr": self.temperature_lr}

        turns = (
            Turn(name=CRITICS, groups=(CRITICS,), source=CRITICS, objective=False),
            Turn(name=ACTOR, groups=(ACTOR,), source=ACTOR, objective=False),
            Turn(
                name=TEMPERATURE,
                groups=(TEMPERATURE,),
                source=TEMPERATURE,
                objective=False,
                balancer=Equal(reduction="sum"),
                optimizer=OptimizerSpec(training=temperature_training),
            ),
        )

        # The set's samples are not used, so batches have as few as possible.
        return Phase(name=name, turns=(*before, *turns), epochs=epochs, choose="last", main=CRITICS, batch_size=1)

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        simulated = environments_of(suite, self.name)
        return SACModule(suite, simulated, self, lambda *sizes: self.network(suite, simulated, encoder(), *sizes))

    def network(
        self, suite: TaskSuite, told: Simulated, encoder: EncoderModule, role: Role, inputs: int, outputs: int
    ) -> TaskNetwork:
        """Build an actor or a critic."""
        hidden, activation = hidden_of(encoder, self.name)
        if self.sharing == "none":
            task_layers = [layers_of(inputs, hidden, activation) for _ in suite.tasks]
            return SeparateNetworks(task_layers, hidden[-1], outputs)
        layers = layers_of(inputs, hidden, activation)
        if self.sharing == "whole":
            return SharedNetwork(layers, hidden[-1], outputs)
        return WithHeads(layers, hidden[-1], outputs, len(suite.tasks))
