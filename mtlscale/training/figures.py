"""What an `evaluation` asks of a trained classifier beside its metrics: attacked, shown what is none of its classes,
counted and timed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from mtlscale.architectures import MultiTaskModule
from mtlscale.data import Batch, Samples, Workers, slice_for
from mtlscale.metrics import NETWORK
from mtlscale.metrics.detection import confidence, detection
from mtlscale.spec import MISSING_CLASS, EvaluationSpec, TaskSuite, UserError
from mtlscale.training.attack import Pixels, pgd
from mtlscale.training.batches import Batches

SPLITS = ("val", "test")
OOD = "ood"  # the stream of what is none of the classes
_WARM, _TIMED, _TOGETHER = 3, 20, 64  # passes before the clock runs and under it; samples at a time


def check_evaluation(spec: EvaluationSpec | None, suite: TaskSuite) -> None:
    """`UserError` where a suite has nothing that could be measured so."""
    if spec is None:
        return
    task = suite.tasks[0]
    one = len(suite.tasks) == 1 and task.loss == "cross_entropy" and not set(task.metrics) & {"miou", "pixel_accuracy"}
    if (spec.pgd is not None or spec.ood) and not one:
        raise UserError(f"evaluation: {suite.name} is not one task of classes; drop `pgd` and `ood`")
    if spec.pgd is not None and suite.input_kind != "image":
        raise UserError(f"evaluation: pgd changes images, {suite.name} has {suite.input_kind}s; drop it")
    if spec.ood and OOD not in suite.unlabelled:
        raise UserError(
            f"evaluation: {suite.name} has no stream {OOD}; name a set in its options, as `ood: svhn`, or drop it"
        )


@torch.no_grad()
def measured_figures(
    spec: EvaluationSpec | None, model: MultiTaskModule, batches: Batches, suite: TaskSuite, workers: Workers
) -> dict[str, dict[str, float]]:
    """Split -> figure -> value, and those of the network, the same for any number of workers (but for the times). All
    workers have to call it. Leaves the network in evaluation mode."""
    if spec is None:
        return {}
    model.eval()
    measured = _Measured(spec, model, batches, suite, workers)
    found: dict[str, dict[str, float]] = {}
    for split in spec.splits:
        values = {}
        if spec.pgd is not None:
            values["pgd_accuracy"] = measured.attacked(split)
        if spec.ood:
            values |= measured.detected(split)
        if values:
            found[split] = values
    if spec.flops or spec.latency:
        found[NETWORK] = measured.network()
    return found


@dataclass(frozen=True)
class _Measured:
    spec: EvaluationSpec
    model: MultiTaskModule
    batches: Batches
    suite: TaskSuite
    workers: Workers

    @property
    def task(self) -> str:
        return self.suite.tasks[0].name

    @property
    def stream(self) -> str:
        """That of the labelled samples."""
        return next(stream for stream, tasks in self.suite.streams.items() if tasks)

    def logits(self, inputs: Tensor) -> Tensor:
        samples = Samples(inputs, {})
        outputs = self.model(Batch(self.stream, samples, len(inputs), predict=(self.task,)))
        logits: Tensor = outputs.predictions[self.task]
        return logits

    # -- attacked --------------------------------------------------------------------------------------------------

    def attacked(self, split: str) -> float:
        """Accuracy in percent on the images that the attack has made of this split's."""
        spec = self.spec.pgd
        assert spec is not None
        sums = torch.zeros(2, dtype=torch.float64, device=self.batches.device)
        pixels: Pixels | None = None
        for batch in self.batches.of_split(split):
            pixels = pixels or self.pixels(batch.inputs)
            target = batch.samples.targets[self.task]
            known = target != MISSING_CLASS

            def loss(images: Tensor, target: Tensor = target) -> Tensor:
                return functional.cross_entropy(
                    self.logits(images), target, reduction="sum", ignore_index=MISSING_CLASS
                )

            changed = pgd(loss, pixels(batch.inputs), pixels, spec.epsilon, spec.steps, spec.length)
            right = (self.logits(changed).argmax(1) == target) & known
            sums += torch.stack([right.sum(), known.sum()]).to(sums)
        right_of, count = self.workers.sum(sums).tolist()
        return 100.0 * right_of / count if count else float("nan")

    def pixels(self, images: Tensor) -> Pixels:
        """How the network reads floating-point images: normalised, as encoders do, or as bytes without rounding."""
        dtype = self.batches.dtype
        expected = self.logits(images)
        for found in (kind(self.suite, dtype, self.batches.device) for kind in (Pixels.of, Pixels.raw)):
            if torch.allclose(self.logits(found(images).to(dtype)), expected, rtol=1e-3, atol=1e-4):
                return found
        raise UserError("evaluation: pgd needs a network that takes normalised images, too; drop it")

    # -- shown what is none of the classes -------------------------------------------------------------------------

    def detected(self, split: str) -> dict[str, float]:
        inside = torch.cat([self._nothing, *(confidence(self.logits(b.inputs)) for b in self.batches.of_split(split))])
        outside = torch.cat([self._nothing, *(confidence(self.logits(inputs)) for inputs in self._outside(split))])
        inside, outside = self._all(inside), self._all(outside)
        return detection(inside, outside) if len(inside) and len(outside) else {}

    @property
    def _nothing(self) -> Tensor:
        return torch.zeros(0, dtype=torch.float64, device=self.batches.device)

    def _outside(self, split: str) -> Iterator[Tensor]:
        """This worker's share of the stream without labels."""
        size = self.batches.reader.sizes(split).get(OOD, 0)
        mine = slice_for(torch.arange(size), self.workers.rank, self.workers.size)
        for part in mine.split(self.batches.eval_batch_size):
            if len(part):
                yield self.batches.take(split, OOD, part).inputs

    def _all(self, mine: Tensor) -> Tensor:
        """The numbers of all workers, which may have different many of them."""
        most = int(self.workers.max(torch.tensor(float(len(mine)))))
        there = self.workers.gather(functional.pad(mine, (0, most - len(mine)), value=torch.nan)).reshape(-1)
        return there[~there.isnan()]

    # -- counted and timed -----------------------------------------------------------------------------------------

    def network(self) -> dict[str, float]:
        sizes = self.batches.reader.sizes("val")
        count = min(_TOGETHER, sizes[self.stream])
        inputs = self.batches.take("val", self.stream, torch.arange(count)).inputs
        found = {"flops": self._multiply_adds(inputs[:1]) / 1e6} if self.spec.flops else {}
        if self.spec.latency:
            times = torch.zeros(2, dtype=torch.float64, device=self.batches.device)
            if self.workers.rank == 0:  # the others wait, so that nobody disturbs the clock
                one, many = self._seconds(inputs[:1]), self._seconds(inputs)
                times = torch.tensor([1e3 * one, count / many], dtype=torch.float64, device=self.batches.device)
            found["latency_ms"], found["throughput"] = self.workers.sum(times).tolist()
        return found

    def _predict(self, inputs: Tensor) -> None:
        names = tuple(task for task in self.suite.streams[self.stream])
        self.model(Batch(self.stream, Samples(inputs, {}), len(inputs), predict=names))

    def _multiply_adds(self, inputs: Tensor) -> int:
        from torch.utils.flop_counter import FlopCounterMode

        with FlopCounterMode(display=False) as counter:
            self._predict(inputs)
        return int(counter.get_total_flops()) // 2

    def _seconds(self, inputs: Tensor) -> float:
        """Median of a pass."""
        cuda = self.batches.device.type == "cuda"
        found = []
        for number in range(_WARM + _TIMED):
            started = time.perf_counter()
            self._predict(inputs)
            if cuda:
                torch.cuda.synchronize(self.batches.device)
            if number >= _WARM:
                found.append(time.perf_counter() - started)
        return statistics.median(found)
