"""Gradients that are summed during the backward pass are those summed after it, to the last bit."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from two_workers import two_workers

from mtlscale.data import Workers
from mtlscale.training.gradients.overlap import Overlap


def network() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    words = nn.Embedding(11, 4, sparse=True)
    return words, nn.Sequential(*(nn.Linear(4, 4) for _ in range(6)), nn.Linear(4, 1))


def gradients(job: dict[str, Any], workers: Workers) -> dict[str, Tensor]:
    """Of a loss on this worker's words. A worker without words has no loss; one layer is never reached."""
    words, layers = network()
    unused = nn.Linear(3, 3)
    parameters = [*unused.parameters(), *words.parameters(), *layers.parameters()]
    mine = torch.arange(7)[workers.rank :: workers.size] if job["all"] or workers.rank == 0 else None
    if job["limit"] is None:
        if mine is not None:
            layers(words(mine)).square().sum().backward()
        for parameter in parameters:
            grad = parameter.grad
            parameter.grad = torch.zeros_like(parameter) if grad is None else grad.to_dense()
        workers.sum_many([p.grad for p in parameters if p.grad is not None])
        return {str(place): p.grad for place, p in enumerate(parameters) if p.grad is not None}
    early: list[int] = []
    words.weight.register_post_accumulate_grad_hook(lambda _: early.append(overlap._sent))
    overlap = Overlap(parameters, workers, job["limit"])
    for _ in range(2):  # it is used step after step
        for parameter in parameters:
            parameter.grad = None
        with overlap.reducing():
            if mine is not None:
                layers(words(mine)).square().sum().backward()
    found = {str(place): p.grad for place, p in enumerate(parameters) if p.grad is not None}
    return {**found, "early": torch.tensor(early[-1:])}


def test_sums_are_those_of_one_message_after_the_pass() -> None:
    limits = (None, 1, 80, 1 << 20)
    jobs = [{"all": every, "limit": limit} for every in (True, False) for limit in limits]
    first, second = two_workers(gradients, jobs)
    for job, found, other in zip(jobs, first, second, strict=True):
        expected = first[jobs.index({"all": job["all"], "limit": None})]
        for place, value in expected.items():
            assert torch.equal(found[place], value) and torch.equal(other[place], value), (job, place)


def test_messages_leave_while_the_pass_goes_on() -> None:
    """When the gradient of the words comes, the last one, those of the layers above are on their way."""
    jobs = [{"all": True, "limit": limit} for limit in (1, 80, 1 << 20)]
    one_each, some, one_in_all = (int(found["early"][0]) for found in two_workers(gradients, jobs)[0])
    assert one_each == 14 and 1 < some < 14 and one_in_all == 0
