"""Figures 3 and 8 of Wu, Zhang & Ré (ICLR 2020): where does a source help and hurt, by covariance and by labels?

    python studies/figure3.py --home HOME                  # all of it
    python studies/figure3.py --home HOME --only printed   # or grid, chosen, angles, classes

A target and a source of the pipeline `transfer` share one narrow layer of linear units or ReLUs,
each with a linear head; the sum of their mean squared errors is minimised by Adam on batches of 64 samples of each. The
single task has the same layer to itself and starts from the same weights. What is measured is the RMSE on 1,000 test
samples of the target, and the gain over the single task in percent. All draws and sources train as one batched model.

*grid*: target samples, noise, width and steps on draws 10 to 14. *chosen*: of every link the setting of the grid in
which the same covariance gains and another one loses most surely (the smaller of the two means over their half
intervals), on draws 0 to 9, by the source's size. *printed*: 9,000 target samples, no noise, rate 1e-3, 30 epochs.
*angles* (figure 8, its regressions): the cosine of the tasks' weights, at `transfer_synthetic`'s settings, draws 20
to 29. *classes* (figure 8, its classes): the same pairs, where a task's label is whether its number is above the median
of its training samples; the sum of the cross entropies is minimised, and test errors in percent are measured.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss

from mtlscale.config import UserError
from mtlscale.records import Home, write_atomically
from mtlscale.report.stats.statistics import half_width
from pipelines.generated.transfer import SOURCE, TARGET, Transfer

COVARIANCES = ("same", "disjoint", "rotated")
CHOOSING, SHOWN, PAIRS = range(10, 15), range(10), range(20, 30)
BATCH = 64


@dataclass(frozen=True)
class Setting:
    """What is the same for all draws and sources; `steps` are those after which test samples are measured."""

    link: str
    samples: int
    noise: float
    width: int
    steps: tuple[int, ...]
    lr: float = 1e-2
    cosine: float = 0.96
    classes: bool = False

    def words(self, steps: int) -> str:
        return f"{self.link} | {self.samples} | {self.noise:g} | {self.width} | {steps}"


GRID = [
    Setting(link, samples, noise, width, (100, 300, 1000))
    for link, samples, noise in itertools.product(("linear", "relu"), (20, 40, 100), (0.25, 1.0))
    for width in ((1, 2) if link == "linear" else (2, 4))
]
PRINTED = [Setting(link, 9000, 0.0, width, (30 * 141,), 1e-3) for link, width in (("linear", 1), ("relu", 2))]
ANGLES = [
    Setting(link, samples, noise, width, (1000,), cosine=cosine)
    for link, samples, noise, width in (("linear", 40, 1.0, 1), ("relu", 100, 0.5, 2))
    for cosine in (1.0, 0.96, 0.8, 0.5, 0.0)
]
CLASSES = [replace(setting, classes=True) for setting in ANGLES]
Key = tuple[int, str, int]  # steps, covariance, source samples
Rows = tuple[Tensor, Tensor]  # inputs, labels
Measured = dict[int, np.ndarray]  # steps -> errors


class Networks:
    """A network of one shared layer and a head per task for each of C pairs of tasks, as one batched model.

    `sourced` [C] is 1 for pairs, 0 for a single task. Weights start as torch's linear layers do, alike for a draw.
    """

    def __init__(
        self, draws: Sequence[int], features: int, width: int, link: str, sourced: Tensor, classes: bool = False
    ) -> None:
        self.link, self.sourced, self.classes = link, sourced, classes
        layers = [_layers(draw, features, width) for draw in draws]
        self.parameters = [torch.stack(tensors).requires_grad_() for tensors in zip(*layers, strict=True)]

    def predict(self, inputs: Tensor, task: int) -> Tensor:
        """Return predictions [C, N] for inputs [C, N, features]."""
        weight, bias, heads, offsets = self.parameters
        shared = torch.baddbmm(bias[:, None], inputs, weight)
        shared = shared.relu() if self.link == "relu" else shared
        return torch.baddbmm(offsets[:, task, None, None], shared, heads[:, task, :, None]).squeeze(-1)

    def loss(self, target: tuple[Tensor, Tensor], source: tuple[Tensor, Tensor]) -> Tensor:
        """Return the sum over pairs of the target's loss and, where there is one, the source's."""
        loss_of = binary_cross_entropy_with_logits if self.classes else mse_loss
        losses = [
            loss_of(self.predict(inputs, task), labels, reduction="none").mean(1)
            for task, (inputs, labels) in enumerate((target, source))
        ]
        return (losses[0] + self.sourced * losses[1]).sum()

    def errors(self, inputs: Tensor, labels: Tensor) -> np.ndarray:
        """Return each pair's error [C] on the target: RMSE, or wrong classes in percent."""
        with torch.no_grad():
            predictions = self.predict(inputs, 0)
            if self.classes:
                return 100.0 * ((predictions > 0) != (labels > 0.5)).double().mean(1).numpy()
            return (predictions - labels).square().mean(1).sqrt().numpy()


def _layers(draw: int, features: int, width: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(draw)

    def uniform(*shape: int, inputs: int) -> Tensor:
        return (2.0 * torch.rand(shape, generator=generator) - 1.0) / inputs**0.5

    layer = [uniform(features, width, inputs=features), uniform(width, inputs=features)]
    return [*layer, uniform(2, width, inputs=width), uniform(2, inputs=width)]


def errors(setting: Setting, draws: Sequence[int], sizes: Sequence[int]) -> dict[Key, np.ndarray]:
    """Return the target's error [draws] after these steps, by covariance and source samples; ("", 0) is alone."""
    sources = [("", 0), *itertools.product(COVARIANCES, sizes)]
    pairs = [(draw, *source) for draw in draws for source in sources]
    sourced = torch.tensor([float(size > 0) for _, _, size in pairs])
    measured = trained(setting, [draw for draw, *_ in pairs], sourced, *_data(setting, pairs))
    return {
        (step, *source): values[number :: len(sources)]
        for step, values in measured.items()
        for number, source in enumerate(sources)
    }


def trained(
    setting: Setting,
    draws: Sequence[int],
    sourced: Tensor,
    target: Rows,
    source: Rows,
    test: Rows,
    counts: Tensor,
) -> Measured:
    """Return each pair's error [C] on the target's test samples after the setting's steps.

    Args:
        setting: What is the same for all pairs.
        draws: Each pair's draw of the first weights [C].
        sourced: 1 for pairs, 0 for a single task [C].
        target: Inputs [C, N, d] and labels [C, N].
        source: The same of the source, whose rows behind `counts` are never drawn.
        test: The same of the target, for measuring.
        counts: The number of source samples [C].
    """
    networks = Networks(draws, target[0].shape[-1], setting.width, setting.link, sourced, setting.classes)
    optimizer = torch.optim.Adam(networks.parameters, lr=setting.lr)
    generator, place = torch.Generator().manual_seed(0), torch.arange(len(draws))[:, None]

    measured: Measured = {}
    for step in range(1, max(setting.steps) + 1):
        rows = torch.randperm(setting.samples, generator=generator)[:BATCH]
        drawn = (torch.rand(len(draws), BATCH, generator=generator) * counts[:, None]).long()
        loss = networks.loss(
            (target[0][:, rows], target[1][:, rows]), (source[0][place, drawn], source[1][place, drawn])
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step in setting.steps:
            measured[step] = networks.errors(*test)
    return measured


def _data(setting: Setting, pairs: Sequence[tuple[int, str, int]]) -> tuple[Rows, Rows, Rows, Tensor]:
    """Return samples [C, N, ...] of target, source (zeros behind the last) and test, and the sources' sizes [C]."""
    parts: dict[str, list[tuple[Tensor, Tensor]]] = {"target": [], "source": [], "test": []}
    for draw, covariance, size in pairs:
        pipeline = Transfer(
            samples=setting.samples,
            source_samples=max(size, 2),
            covariance=covariance or "same",
            cosine=setting.cosine,
            link=setting.link,
            noise=setting.noise,
            split=draw,
        )
        vectors = pipeline.vectors()
        for name, task, split in (("target", TARGET, "train"), ("source", SOURCE, "train"), ("test", TARGET, "test")):
            rows = vectors[task].rows[split]
            features, targets = vectors[task].features[rows], vectors[task].targets[rows]
            if setting.classes:
                targets = targets > np.median(vectors[task].targets[vectors[task].rows["train"]])
            parts[name].append((torch.from_numpy(features).float(), torch.from_numpy(targets).float().reshape(-1)))

    counts = torch.tensor([len(labels) for _, labels in parts["source"]])
    stacked = {
        name: tuple(
            torch.nn.utils.rnn.pad_sequence(list(tensors), batch_first=True) for tensors in zip(*found, strict=True)
        )
        for name, found in parts.items()
    }
    return stacked["target"], stacked["source"], stacked["test"], counts  # type: ignore[return-value]


def gains(found: Mapping[Key, np.ndarray]) -> dict[Key, tuple[float, float]]:
    """Return the mean gain over the single task in percent, and half its 95 % interval over draws."""
    result = {}
    for (step, covariance, size), error in found.items():
        if covariance:
            alone = found[step, "", 0]
            gain = 100.0 * (alone - error) / alone
            result[step, covariance, size] = float(gain.mean()), float(half_width(gain.std(ddof=1), len(gain)))
    return result


def printed_shape(gained: Mapping[Key, tuple[float, float]], step: int, size: int) -> float:
    """Return how surely the same covariance gains and a disjoint one loses; positive if both means do."""
    (same, same_half), (other, other_half) = (gained[step, covariance, size] for covariance in ("same", "disjoint"))
    return min(same / max(same_half, 1e-9), -other / max(other_half, 1e-9))


def _table(head: str, rows: Sequence[str]) -> Iterator[str]:
    yield f"| {head} |"
    yield f"|{' --- |' * (head.count('|') + 1)}"
    yield from (f"| {row} |" for row in rows)
    yield ""


def _cells(gained: Mapping[Key, tuple[float, float]], step: int, size: int) -> str:
    return " | ".join("{:+.1f} ± {:.1f}".format(*gained[step, covariance, size]) for covariance in COVARIANCES)


_SETTING = "link | target samples | noise | width | steps"


def grid(settings: Sequence[Setting], draws: Sequence[int]) -> tuple[list[str], dict[str, tuple[Setting, int]]]:
    """Return the table of the grid, and of every link the setting and steps nearest to the printed shape."""
    rows, best = [], {}
    scores: dict[str, float] = {}
    for setting in settings:
        gained = gains(errors(setting, draws, (9000,)))
        for step in setting.steps:
            score = printed_shape(gained, step, 9000)
            rows.append(f"{setting.words(step)} | {_cells(gained, step, 9000)}")
            if score > scores.get(setting.link, -np.inf):
                scores[setting.link], best[setting.link] = score, (setting, step)
        print(rows[-1], file=sys.stderr, flush=True)
    lines = [f"Gain over the single task, %, a source of 9,000 samples, {len(draws)} draws:", ""]
    return [*lines, *_table(f"{_SETTING} | {' | '.join(COVARIANCES)}", rows)], best


def curves(settings: Sequence[Setting], draws: Sequence[int], sizes: Sequence[int]) -> list[str]:
    """Return a table of gains by the source's size, after the last step."""
    rows = []
    for setting in settings:
        found = errors(setting, draws, sizes)
        gained, step = gains(found), setting.steps[-1]
        alone = found[step, "", 0].mean()
        rows += [f"{setting.words(step)} | {alone:.4f} | {size} | {_cells(gained, step, size)}" for size in sizes]
    return list(_table(f"{_SETTING} | RMSE alone | source samples | {' | '.join(COVARIANCES)}", rows))


def by_angle(settings: Sequence[Setting], draws: Sequence[int], size: int) -> list[str]:
    """Return a table of gains by the cosine of the tasks' weights, after the last step."""
    rows = []
    for setting in settings:
        gained, step = gains(errors(setting, draws, (size,))), setting.steps[-1]
        rows.append(f"{setting.words(step)} | {setting.cosine:g} | {_cells(gained, step, size)}")
    return list(_table(f"{_SETTING} | cosine | {' | '.join(COVARIANCES)}", rows))


def page(
    only: str | None,
    settings: Sequence[Setting],
    choosing: Sequence[int],
    shown: Sequence[int],
    angles: Sequence[Setting],
    pairs: Sequence[int],
    classes: Sequence[Setting],
) -> str:
    lines: list[str] = []
    if only in (None, "grid", "chosen"):
        table, best = grid(settings, choosing)
        lines += ["### Grid", "", *table]
        if only != "grid":
            chosen = [replace(setting, steps=(step,)) for setting, step in best.values()]
            text = f"Settings nearest to the printed shape on the draws of the grid, on {len(shown)} others, %:"
            lines += ["### Chosen", "", text, "", *curves(chosen, shown, (30, 100, 1000, 9000))]
    if only in (None, "printed"):
        text = f"9,000 target samples, no noise, rate 1e-3, 30 epochs, {len(choosing)} draws, %:"
        lines += ["### As printed", "", text, "", *curves(PRINTED, choosing, (100, 1000, 9000))]
    if only in (None, "angles"):
        text = f"By the cosine of the tasks' weights, a source of 1,000 samples, {len(pairs)} draws, %:"
        lines += ["### Angles", "", text, "", *by_angle(angles, pairs, 1000)]
    if only in (None, "classes"):
        text = f"Classes, by the cosine of the tasks' weights, a source of 1,000 samples, {len(pairs)} draws, %:"
        lines += ["### Classes", "", text, "", *by_angle(classes, pairs, 1000)]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, default=Path("outputs"))
    parser.add_argument("--only", choices=("grid", "chosen", "printed", "angles", "classes"), help="default: all")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    if given.threads < 1:
        raise UserError(f"--threads {given.threads}: give at least one")
    torch.set_num_threads(given.threads)
    text = page(given.only, GRID, CHOOSING, SHOWN, ANGLES, PAIRS, CLASSES)
    name = "figure3" if given.only is None else f"figure3_{given.only}"
    write_atomically(Home.at(given.home).experiment(name) / "page.md", text.encode())
    print(text)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"figure3: {error}")
