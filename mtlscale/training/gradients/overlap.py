"""Summation of gradients over workers while the backward pass that makes them still goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from mtlscale.data import Workers

_BUCKET = 4 << 20  # bytes: enough to be worth a message, few enough to leave some for the rest of the pass


@dataclass
class _Bucket:
    """Bucket of parameters of one type that travel together."""

    parameters: list[nn.Parameter]
    missing: int = 0  # gradients that the backward pass has not made yet
    message: Tensor | None = None
    on_its_way: torch.distributed.Work | None = None


@dataclass
class Overlap:
    """Summation of `.grad` over workers, bucket by bucket, each as soon as the backward pass has made its gradients.

    Buckets leave in one fixed order, from the last parameters to the first as a backward pass meets them, so that all
    workers send the same messages; what a worker's pass has left out counts as zeros. The network itself must not talk
    to other workers on the way back. The sums are those of one message after the pass.
    """

    parameters: Sequence[nn.Parameter]
    workers: Workers
    limit: int = _BUCKET
    _buckets: list[_Bucket] = field(default_factory=list)
    _sent: int = 0
    _active: bool = False

    def __post_init__(self) -> None:
        size = self.limit
        for parameter in reversed(list(self.parameters)):
            full = size + parameter.numel() * parameter.element_size() > self.limit
            if full or self._buckets[-1].parameters[0].dtype != parameter.dtype:
                self._buckets.append(_Bucket([]))
                size = 0
            self._buckets[-1].parameters.append(parameter)
            size += parameter.numel() * parameter.element_size()
        for bucket in self._buckets:
            for parameter in bucket.parameters:
                parameter.register_post_accumulate_grad_hook(lambda _, bucket=bucket: self._arrived(bucket))

    @contextmanager
    def reducing(self) -> Iterator[None]:
        """Enclose one backward pass that fills empty `.grad`; on exit, the sums are there."""
        for bucket in self._buckets:
            bucket.missing = len(bucket.parameters)
        self._sent, self._active = 0, True
        try:
            yield
        finally:
            self._active = False
        while self._sent < len(self._buckets):
            self._send(self._buckets[self._sent])
        for bucket in self._buckets:
            self._receive(bucket)

    def _arrived(self, bucket: _Bucket) -> None:
        if not self._active:
            return
        bucket.missing -= 1
        while self._sent < len(self._buckets) and self._buckets[self._sent].missing == 0:
            self._send(self._buckets[self._sent])

    def _send(self, bucket: _Bucket) -> None:
        for parameter in bucket.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            elif parameter.grad.is_sparse:
                parameter.grad = parameter.grad.to_dense()
        grads = [parameter.grad.reshape(-1) for parameter in bucket.parameters if parameter.grad is not None]
        bucket.message = torch.cat(grads)
        bucket.on_its_way = self.workers.send_sum(bucket.message)
        self._sent += 1

    def _receive(self, bucket: _Bucket) -> None:
        assert bucket.message is not None
        if bucket.on_its_way is not None:
            bucket.on_its_way.wait()
        sizes = [parameter.numel() for parameter in bucket.parameters]
        for parameter, part in zip(bucket.parameters, bucket.message.split(sizes), strict=True):
            if parameter.grad is not None:
                parameter.grad.copy_(part.view_as(parameter.grad))
        bucket.message = bucket.on_its_way = None
