"""Features that the heads read of every training sample, before the first step."""

from __future__ import annotations

import torch

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import TaskSuite, UserError
from mtlscale.data import Batch, Samples
from mtlscale.training.batches import Batches


@torch.no_grad()
def features(model: MultiTaskModule, suite: TaskSuite, batches: Batches, who: str) -> dict[str, Samples]:
    """Return stream -> its training samples with the shared representation [N, ...] in place of the inputs.

    Labels are as in training. `who` is the component that looks at the features. The network is left in evaluation
    mode.

    Raises:
        UserError: If the architecture has no representation that all heads read.
    """
    model.eval()
    samples_of_stream = {}
    for stream, size in batches.sizes.items():
        names = suite.streams[stream]

        representations: list[torch.Tensor] = []
        labels: dict[str, list[torch.Tensor]] = {name: [] for name in names}

        for index in torch.arange(size).split(batches.eval_batch_size) if names else ():
            samples = batches.take("train", stream, index)
            representation = model(Batch(stream, samples, size)).representation
            if representation is None:
                raise UserError(
                    f"{who} looks at the features that all heads read, and this architecture has none; set its "
                    "`inputs` to raw, or share the encoder as hps does"
                )
            representations.append(representation.flatten(1))
            for name in names:
                target = samples.targets[name]
                labels[name].append(target.flatten() if suite.per_token else target)  # a row for each token

        if names:
            samples_of_stream[stream] = Samples(
                torch.cat(representations), {name: torch.cat(parts) for name, parts in labels.items()}
            )

    return samples_of_stream
