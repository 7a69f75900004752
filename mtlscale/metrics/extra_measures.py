"""Measurements of an `evaluation` beside a classifier's metrics: names, units, directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class ExtraMeasure:
    """The properties of a measurement that are known without a run."""

    header: str  # of its column
    help: str
    higher_is_better: bool
    unit: str = ""
    of: Literal["split", "network"] = "split"  # measured on a split, or of the network alone


NETWORK = "network"  # key beside the splits, for measurements of the network alone
FIGURES: dict[str, ExtraMeasure] = {
    "pgd_accuracy": ExtraMeasure(
        header="PGD acc",
        unit="%",
        higher_is_better=True,
        help="accuracy on samples that projected gradient ascent on the loss has changed",
    ),
    "ood_auroc": ExtraMeasure(
        header="OoD AUROC",
        unit="%",
        higher_is_better=True,
        help="samples out of the distribution told from test samples by their lower largest probability: area under "
        "the ROC curve",
    ),
    "ood_aupr": ExtraMeasure(
        header="OoD AUPR",
        unit="%",
        higher_is_better=True,
        help="the same: average precision of those out of the distribution, by minus the largest probability",
    ),
    "ood_aupr_inverted": ExtraMeasure(
        header="AUPR inv.",
        unit="%",
        higher_is_better=False,
        help="average precision of those out of the distribution by the largest probability itself, as E2RNAS prints "
        "it: less is better, 30.7 % the least at equal counts",
    ),
    "flops": ExtraMeasure(
        header="FLOPs",
        unit="M",
        higher_is_better=False,
        of="network",
        help="millions of multiply-adds in convolutions and matrix products for one sample",
    ),
    "latency_ms": ExtraMeasure(
        header="latency",
        unit="ms",
        higher_is_better=False,
        of="network",
        help="median milliseconds of one sample, where the run was trained",
    ),
    "throughput": ExtraMeasure(
        header="predicts/s",
        unit="samples/s",
        higher_is_better=True,
        of="network",
        help="samples per second in batches, where the run was trained",
    ),
}
