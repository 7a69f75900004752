"""Training of one run in one plain process, without Ray and MLflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtlscale.lazy import lazily

if TYPE_CHECKING:
    from mtlscale.training.augment import Augment
    from mtlscale.training.batches import Batches, made_ahead, on_device
    from mtlscale.training.engine.building import build_model, phase_id
    from mtlscale.training.engine.loop import Progress, Trainer, finish, train
    from mtlscale.training.engine.phases import begin, first_state, noisy_tasks, partition_of
    from mtlscale.training.engine.record import counters, now, run_record, traced
    from mtlscale.training.engine.session import Session, Updater, schedule_factor
    from mtlscale.training.evaluation.evaluate import TaskTable, as_asked, evaluate, tables
    from mtlscale.training.evaluation.item_bootstrap import ItemBootstrap
    from mtlscale.training.evaluation.prediction_images import Pictures
    from mtlscale.training.evaluation.robustness import check_evaluation, measured_figures
    from mtlscale.training.evaluation.select import Selection
    from mtlscale.training.gradients.graph import uses
    from mtlscale.training.gradients.per_task import Partition
    from mtlscale.training.gradients.step_stats import (
        Diverged,
        StepStats,
        bad_gradient,
        bad_loss,
        bad_weights,
        clip_factors,
        head_weights,
        mean_losses,
        with_hints,
    )
    from mtlscale.training.gradients.tally import Tally, furthest
    from mtlscale.training.gradients.update import StepResult, Update
    from mtlscale.training.losses import task_loss
    from mtlscale.training.probes.affinity import task_affinity
    from mtlscale.training.seeds import derive_seed
    from mtlscale.training.sources import SupervisedSource, sparse_embeddings
    from mtlscale.training.task_balancer import TaskBalancer

__all__ = [
    "Augment",
    "Batches",
    "Diverged",
    "ItemBootstrap",
    "Partition",
    "Pictures",
    "Progress",
    "Selection",
    "Session",
    "StepResult",
    "StepStats",
    "SupervisedSource",
    "Tally",
    "TaskBalancer",
    "TaskTable",
    "Trainer",
    "Update",
    "Updater",
    "as_asked",
    "bad_gradient",
    "bad_loss",
    "bad_weights",
    "begin",
    "build_model",
    "check_evaluation",
    "clip_factors",
    "counters",
    "derive_seed",
    "evaluate",
    "finish",
    "first_state",
    "furthest",
    "head_weights",
    "made_ahead",
    "mean_losses",
    "measured_figures",
    "noisy_tasks",
    "now",
    "on_device",
    "partition_of",
    "phase_id",
    "run_record",
    "schedule_factor",
    "sparse_embeddings",
    "tables",
    "task_affinity",
    "task_loss",
    "traced",
    "train",
    "uses",
    "with_hints",
]

__getattr__ = lazily(__name__)
