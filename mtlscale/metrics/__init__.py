"""Metrics: names and directions, accumulators over batches, and measures over a whole suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtlscale.lazy import lazily
from mtlscale.metrics.extra_measures import FIGURES, NETWORK, ExtraMeasure
from mtlscale.metrics.names import (
    IN_UNITS,
    METRICS,
    Metric,
    MetricInfo,
    check_task,
    higher_is_better,
    lowest,
    measured,
    metric_info,
    possible,
    simulated,
)
from mtlscale.metrics.suite import (
    Directions,
    Values,
    delta_flat,
    delta_i,
    delta_main,
    relative_error,
    relative_gain,
    safeness,
    taskwise_improvement,
    total_error,
)

if TYPE_CHECKING:
    from mtlscale.metrics.accumulators import Accumulator, GatheredScores, SumsAccumulator, over_workers
    from mtlscale.metrics.bootstrap import (
        item_sums,
        poisson_weights,
        read_sums,
        resampled,
        sums_per_item,
        vectorised,
    )
    from mtlscale.metrics.tasks import TaskMetrics, pooled, pooled_metrics, pooled_sums, task_metrics

__all__ = [
    "FIGURES",
    "IN_UNITS",
    "METRICS",
    "NETWORK",
    "Accumulator",
    "Directions",
    "ExtraMeasure",
    "GatheredScores",
    "Metric",
    "MetricInfo",
    "SumsAccumulator",
    "TaskMetrics",
    "Values",
    "check_task",
    "delta_flat",
    "delta_i",
    "delta_main",
    "higher_is_better",
    "item_sums",
    "lowest",
    "measured",
    "metric_info",
    "over_workers",
    "poisson_weights",
    "pooled",
    "pooled_metrics",
    "pooled_sums",
    "possible",
    "read_sums",
    "relative_error",
    "relative_gain",
    "resampled",
    "safeness",
    "simulated",
    "sums_per_item",
    "task_metrics",
    "taskwise_improvement",
    "total_error",
    "vectorised",
]

__getattr__ = lazily(__name__)
