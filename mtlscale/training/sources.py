"""Loss sources: the sums of losses that a step differentiates, in mixed precision (AMP) where asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from mtlscale.architectures import MultiTaskModule, Source
from mtlscale.config import TaskSuite, UserError
from mtlscale.data import Batch, Losses, Outputs, Workers
from mtlscale.objectives import ObjectiveModule
from mtlscale.training.losses import task_loss

Amp = Literal["off", "bf16", "fp16"]


class SupervisedSource(Source):
    """Source of the task losses of labelled batches, with an objective's terms.

    Batches without labels reach the objective. Labels may be missing, samples may be weighted. `amp` is the precision
    of the forward pass; predictions come back in the parameters' own.
    """

    def __init__(
        self,
        model: MultiTaskModule,
        suite: TaskSuite,
        objective: ObjectiveModule | None = None,
        *,
        amp: Amp = "off",
        device: torch.device | None = None,
        workers: Workers | None = None,
    ) -> None:
        self.of_tasks = True
        self.model, self.suite, self.objective, self.amp = model, suite, objective, amp

        self.names = tuple(task.name for task in suite.tasks)
        self.device = device or torch.device("cpu")
        self.workers = workers or Workers()
        self._place = {name: index for index, name in enumerate(self.names)}

    def __call__(self, micro: Sequence[Batch], *, terms: bool = True) -> Iterator[Losses]:
        """Yield the losses of each stream's batch; with `terms`, also what the objective adds to them.

        One graph is alive at a time, unless the objective looks at all streams at once.
        """
        objective = self.objective if terms else None
        whole_step = objective is not None and objective.whole_step
        batches_seen: list[tuple[Batch, Outputs]] = []

        for position, batch in enumerate(micro):
            if objective is not None and objective.predicts:
                batch = replace(batch, predict=self.names)

            outputs = self.forward(batch)
            losses = self.losses(batch, outputs)

            if objective is not None:
                term = objective.term(batch, outputs) if batch.labelled else None
                losses.extra = term if losses.extra is None else losses.extra if term is None else losses.extra + term
                batches_seen.append((batch, outputs))

            if whole_step and objective is not None:
                losses.keep = position < len(micro) - 1  # the step's term hangs on the graphs of all its batches
                term = None if losses.keep else objective.step_term(batches_seen, self.workers)
                if term is not None:
                    losses.extra = term if losses.extra is None else losses.extra + term
            else:
                batches_seen.clear()

            yield losses

    def sizes(self, micros: Sequence[Sequence[Batch]]) -> list[float]:
        """Return how many labels [T] each task may have in the whole step.

        It is the same on every worker that has any of them.
        """
        label_counts = [1.0] * len(self.names)
        for micro in micros:
            for batch in micro:
                for name, target in batch.samples.targets.items():
                    # Sequences are as long as the longest of their batch, which differs between workers.
                    entries = self.suite.input_shape[0] if self.suite.per_token else target.shape[1:].numel()
                    label_counts[self._place[name]] = float(max(1, batch.total * entries))
        return label_counts

    def forward(self, batch: Batch) -> Outputs:
        if self.amp == "off":
            plain_outputs: Outputs = self.model(batch)
            return plain_outputs
        dtype = torch.bfloat16 if self.amp == "bf16" else torch.float16
        with torch.autocast(self.device.type, dtype=dtype):
            outputs = self.model(batch)
        return Outputs(
            {name: value.float() for name, value in outputs.predictions.items()},
            outputs.representation,
            outputs.branches,
            {name: value.float() for name, value in outputs.auxiliary.items()},
            outputs.auxiliary_factor,
        )

    def losses(self, batch: Batch, outputs: Outputs) -> Losses:
        """Return the sums of losses of the batch's tasks; the network's weights of them are in the gradients alone."""
        result = Losses(representation=outputs.representation)
        unit_weights = _ones(self.model.task_weights())

        for name, target in batch.samples.targets.items():
            index = self._place[name]
            loss = self.suite.tasks[index].loss
            total, count = task_loss(loss, outputs.predictions[name], target, batch.samples.weights)
            result.tasks.append(index)
            total = total if batch.factor == 1 else total * batch.factor
            result.sums.append(total if unit_weights is None else total * unit_weights[index].to(total.dtype))
            result.counts.append(count)

        for name, prediction in outputs.auxiliary.items():
            loss = self.suite.tasks[self._place[name]].loss
            total, _ = task_loss(loss, prediction, batch.samples.targets[name], batch.samples.weights)
            term = total * (outputs.auxiliary_factor * batch.factor / batch.total)
            result.extra = term if result.extra is None else result.extra + term

        if outputs.branches and len(outputs.branches) >= len(result.tasks):
            result.branches = [outputs.branches[self.names[index]] for index in result.tasks]

        return result


def _ones(weights: Tensor | None) -> Tensor | None:
    """Return w/w [T]: exactly 1 in value, with the gradient of w over w."""
    if weights is None:
        return None
    fixed = weights.detach()
    return 1 + (weights - fixed) / fixed.clamp(min=torch.finfo(fixed.dtype).tiny)


def check_names(source: Source, suite: TaskSuite, turn: str) -> None:
    """Raise `UserError` where a source has losses of tasks that the suite lacks."""
    task_names = [task.name for task in suite.tasks]
    for name in source.names if source.of_tasks else ():
        if name not in task_names:
            raise UserError(
                f"turn {turn}: its source has a loss {name!r}, but {suite.name} has no such task; its tasks are: "
                f"{', '.join(task_names)}"
            )


def sparse_embeddings(model: nn.Module) -> None:
    """Make gradients of embeddings sparse on the host and dense on an accelerator.

    On the host T gradients of a vocabulary then cost the rows that occur; what reaches the optimiser is dense. An
    accelerator would have to tell the host how many rows there are, several times a step: there they are dense, T times
    the size of the vocabulary's vectors.
    """
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            module.sparse = module.weight.device.type == "cpu"
