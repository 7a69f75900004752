"""Extra measures of a trained classifier that an `evaluation` asks for, beside its metrics.

They are its accuracy under attack, how well it detects samples of none of its classes, and its cost and time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import MISSING_CLASS, EvaluationSpec, TaskSuite, UserError
from mtlscale.data import Batch, Samples, Workers, slice_for
from mtlscale.metrics import NETWORK
from mtlscale.metrics.detection import confidence, detection
from mtlscale.training.batches import Batches
from mtlscale.training.evaluation.attack import Pixels, pgd

SPLITS = ("val", "test")
OOD = "ood"  # the stream of out-of-distribution samples: none of the classes
_WARM, _TIMED, _TOGETHER = 3, 20, 64  # warm-up passes, timed passes; samples at a time


def check_evaluation(spec: EvaluationSpec | None, suite: TaskSuite) -> None:
    """Raise `UserError` where a suite lacks what an evaluation measures."""
    if spec is None:
        return

    task = suite.tasks[0]
    single_classifier = (
        len(suite.tasks) == 1 and task.loss == "cross_entropy" and not set(task.metrics) & {"miou", "pixel_accuracy"}
    )

    if (spec.pgd is not None or spec.ood) and not single_classifier:
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
    """Return split -> measure -> value, with those of the network itself under `NETWORK`.

    All but the times are the same for any number of workers. All workers have to call it. The network is left in
    evaluation mode.
    """
    if spec is None:
        return {}

    model.eval()
    measurement = _Measured(spec, model, batches, suite, workers)
    values_of: dict[str, dict[str, float]] = {}

    for split in spec.splits:
        values = {}
        if spec.pgd is not None:
            values["pgd_accuracy"] = measurement.attacked(split)
        if spec.ood:
            values |= measurement.detected(split)
        if values:
            values_of[split] = values

    if spec.flops or spec.latency:
        values_of[NETWORK] = measurement.network()
    return values_of


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
        """The stream of the labelled samples."""
        return next(stream for stream, tasks in self.suite.streams.items() if tasks)

    def logits(self, inputs: Tensor) -> Tensor:
        samples = Samples(inputs, {})
        outputs = self.model(Batch(self.stream, samples, len(inputs), predict=(self.task,)))
        logits: Tensor = outputs.predictions[self.task]
        return logits

    # -- adversarial attack ----------------------------------------------------------------------------------------

    def attacked(self, split: str) -> float:
        """Return the accuracy in percent on a split's images after the attack."""
        spec = self.spec.pgd
        assert spec is not None
        sums = torch.zeros(2, dtype=torch.float64, device=self.batches.device)
        pixels: Pixels | None = None
        for batch in self.batches.of_split(split):
            pixels = pixels or self.pixels(batch.inputs)
            target = batch.samples.targets[self.task]
            labelled = target != MISSING_CLASS

            def loss(images: Tensor, target: Tensor = target) -> Tensor:
                return functional.cross_entropy(
                    self.logits(images), target, reduction="sum", ignore_index=MISSING_CLASS
                )

            changed = pgd(loss, pixels(batch.inputs), pixels, spec.epsilon, spec.steps, spec.length)
            correct = (self.logits(changed).argmax(1) == target) & labelled
            sums += torch.stack([correct.sum(), labelled.sum()]).to(sums)
        correct_count, count = self.workers.sum(sums).tolist()
        return 100.0 * correct_count / count if count else float("nan")

    def pixels(self, images: Tensor) -> Pixels:
        """Return how the network reads floating-point images.

        They are normalised, as encoders do, or bytes without rounding.
        """
        dtype = self.batches.dtype
        expected = self.logits(images)
        for candidate in (kind(self.suite, dtype, self.batches.device) for kind in (Pixels.of, Pixels.raw)):
            if torch.allclose(self.logits(candidate(images).to(dtype)), expected, rtol=1e-3, atol=1e-4):
                return candidate
        raise UserError("evaluation: pgd needs a network that takes normalised images, too; drop it")

    # -- out-of-distribution detection -----------------------------------------------------------------------------

    def detected(self, split: str) -> dict[str, float]:
        inside = torch.cat([self._nothing, *(confidence(self.logits(b.inputs)) for b in self.batches.of_split(split))])
        outside = torch.cat([self._nothing, *(confidence(self.logits(inputs)) for inputs in self._outside(split))])
        inside, outside = self._all(inside), self._all(outside)
        return detection(inside, outside) if len(inside) and len(outside) else {}

    @property
    def _nothing(self) -> Tensor:
        return torch.zeros(0, dtype=torch.float64, device=self.batches.device)

    def _outside(self, split: str) -> Iterator[Tensor]:
        """Yield this worker's share of the stream without labels."""
        size = self.batches.reader.sizes(split).get(OOD, 0)
        worker_indices = slice_for(torch.arange(size), self.workers.rank, self.workers.size)
        for part in worker_indices.split(self.batches.eval_batch_size):
            if len(part):
                yield self.batches.take(split, OOD, part).inputs

    def _all(self, mine: Tensor) -> Tensor:
        """Return the numbers of all workers, which may have different many of them."""
        longest = int(self.workers.max(torch.tensor(float(len(mine)))))
        gathered = self.workers.gather(functional.pad(mine, (0, longest - len(mine)), value=torch.nan)).reshape(-1)
        return gathered[~gathered.isnan()]

    # -- cost and time ---------------------------------------------------------------------------------------------

    def network(self) -> dict[str, float]:
        sizes = self.batches.reader.sizes("val")
        count = min(_TOGETHER, sizes[self.stream])
        inputs = self.batches.take("val", self.stream, torch.arange(count)).inputs
        measures = {"flops": self._multiply_adds(inputs[:1]) / 1e6} if self.spec.flops else {}
        if self.spec.latency:
            times = torch.zeros(2, dtype=torch.float64, device=self.batches.device)
            if self.workers.rank == 0:  # the others wait, so that nobody disturbs the clock
                seconds_of_one, seconds_of_all = self._seconds(inputs[:1]), self._seconds(inputs)
                times = torch.tensor(
                    [1e3 * seconds_of_one, count / seconds_of_all], dtype=torch.float64, device=self.batches.device
                )
            measures["latency_ms"], measures["throughput"] = self.workers.sum(times).tolist()
        return measures

    def _predict(self, inputs: Tensor) -> None:
        names = tuple(task for task in self.suite.streams[self.stream])
        self.model(Batch(self.stream, Samples(inputs, {}), len(inputs), predict=names))

    def _multiply_adds(self, inputs: Tensor) -> int:
        from torch.utils.flop_counter import FlopCounterMode

        with FlopCounterMode(display=False) as counter:
            self._predict(inputs)
        return int(counter.get_total_flops()) // 2

    def _seconds(self, inputs: Tensor) -> float:
        """Return the median time of a pass in seconds."""
        cuda = self.batches.device.type == "cuda"
        times = []
        for number in range(_WARM + _TIMED):
            started = time.perf_counter()
            self._predict(inputs)
            if cuda:
                torch.cuda.synchronize(self.batches.device)
            if number >= _WARM:
                times.append(time.perf_counter() - started)
        return statistics.median(times)
