"""What the class probabilities of two domains say of a network, measured at the same place for every network."""

from __future__ import annotations

from collections import deque

import torch
from torch import Tensor

from mtlscale.config import UserError
from mtlscale.data import Workers
from mtlscale.objectives import gathered, population_correlation

MOST_ROWS = 2048  # of each domain and all workers, the last ones of an epoch


def no_target(kind: str) -> str:
    """Return the message for a score that lacks the target domain."""
    return (
        f"reward: {kind} needs predictions of both domains, and nothing passes the target through the network; add an "
        "objective that compares domains, such as population_correlation"
    )


class DomainPredictions:
    """The class probabilities of an epoch's last training samples, by domain."""

    def __init__(self) -> None:
        self._rows: dict[bool, deque[Tensor]] = {True: deque(), False: deque()}  # by whether the domain has labels

    def add(self, logits: Tensor, labelled: bool) -> None:
        """Add a batch's logits [B, k]; forget the oldest ones beyond the limit."""
        batches = self._rows[labelled]
        batches.append(logits.detach().softmax(1))
        most = -(-MOST_ROWS // Workers.current().size)
        while sum(map(len, batches)) - len(batches[0]) >= most:
            batches.popleft()

    def score(self, kind: str) -> float:
        """Return a score of the predictions of all workers, and forget them.

        Args:
            kind: "prediction" is the population correlation of the two domains' class probabilities; "information" the
                mutual information of target samples and their predicted classes, in nats.

        Raises:
            UserError: If no sample of the target domain has passed through the network.
        """
        if not (self._rows[True] and self._rows[False]):
            raise UserError(no_target(kind))
        source, target = (
            gathered(torch.cat(list(self._rows[labelled])), Workers.current()) for labelled in (True, False)
        )
        for batches in self._rows.values():
            batches.clear()
        return float(population_correlation(source, target) if kind == "prediction" else mutual_information(target))


def mutual_information(classes: Tensor) -> Tensor:
    """Return H(mean of the rows) minus the mean of H(row), in nats, for probabilities [N, k]."""
    of_rows: Tensor = torch.special.entr(classes).sum(1).mean()
    of_mean: Tensor = torch.special.entr(classes.mean(0)).sum()
    return of_mean - of_rows
