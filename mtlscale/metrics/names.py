"""The metrics of a task and their directions."""

from __future__ import annotations

from dataclasses import dataclass

from mtlscale.spec import UserError, nearest


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric of a task. Rates are in percent, as the published tables print them."""

    higher_is_better: bool
    losses: tuple[str, ...]  # the losses of the tasks it is defined for
    help: str
    unit: str = ""


_LABELS = ("cross_entropy", "soft_cross_entropy", "bce")
_NUMBERS = ("mse", "l1")

METRICS: dict[str, Metric] = {
    "accuracy": Metric(higher_is_better=True, losses=_LABELS, unit="%", help="right labels among those present"),
    "error": Metric(higher_is_better=False, losses=_LABELS, unit="%", help="100 − accuracy"),
    "soft_error": Metric(
        higher_is_better=False,
        losses=("soft_cross_entropy",),
        unit="%",
        help="samples whose most likely class is not that of the soft label",
    ),
    "cross_entropy": Metric(higher_is_better=False, losses=_LABELS, unit="nats", help="mean over labels present"),
    "f1": Metric(
        higher_is_better=True,
        losses=("cross_entropy", "bce"),
        unit="%",
        help="of the positive class where there is one output, else mean over classes in truth or prediction",
    ),
    "auroc": Metric(
        higher_is_better=True,
        losses=("cross_entropy", "bce"),
        unit="%",
        help="exact area under the ROC curve, one class against the rest, mean over classes with both kinds of samples",
    ),
    "mse": Metric(higher_is_better=False, losses=_NUMBERS, help="mean squared error"),
    "rmse": Metric(higher_is_better=False, losses=_NUMBERS, help="root of the mean squared error over the split"),
    "mae": Metric(higher_is_better=False, losses=_NUMBERS, help="mean absolute error"),
    "miou": Metric(
        higher_is_better=True,
        losses=("cross_entropy",),
        unit="%",
        help="mean over classes of intersection over union, from one confusion matrix over the split",
    ),
    "pixel_accuracy": Metric(
        higher_is_better=True, losses=("cross_entropy",), unit="%", help="right pixels among those with a label"
    ),
    "pixel_error": Metric(higher_is_better=False, losses=("cross_entropy",), unit="%", help="100 − pixel accuracy"),
    "abs_err": Metric(higher_is_better=False, losses=_NUMBERS, help="mean absolute depth error over valid pixels"),
    "rel_err": Metric(higher_is_better=False, losses=_NUMBERS, help="mean of the depth error over the true depth"),
    "angle_mean": Metric(higher_is_better=False, losses=("cosine",), unit="°", help="mean angle to the true normal"),
    "angle_median": Metric(
        higher_is_better=False, losses=("cosine",), unit="°", help="exact median of the angles of all valid pixels"
    ),
    "angle_rmse": Metric(higher_is_better=False, losses=("cosine",), unit="°", help="root of the mean squared angle"),
    **{
        f"within_{bound}": Metric(
            higher_is_better=True, losses=("cosine",), unit="%", help=f"normals less than {bound}° off"
        )
        for bound in ("11.25", "22.5", "30")
    },
    "max_f": Metric(
        higher_is_better=True,
        losses=("cross_entropy", "bce"),
        unit="%",
        help="largest F (β² = 0.3) over 256 thresholds on the saliency map, pooled over the split",
    ),
}


def higher_is_better(metric: str) -> bool:
    """The direction of a metric of that name; `UserError` with the nearest names where there is none."""
    if metric not in METRICS:
        raise UserError(f"unknown metric {metric!r}: {nearest(metric, list(METRICS))}")
    return METRICS[metric].higher_is_better
