"""Training one run in one plain process: no Ray, no MLflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtlscale.lazy import lazily

if TYPE_CHECKING:
    from mtlscale.training import checkpoint
    from mtlscale.training.affinity import task_affinity
    from mtlscale.training.augment import Augment
    from mtlscale.training.batches import Batches, made_ahead, on_device
    from mtlscale.training.building import build_model, phase_id
    from mtlscale.training.evaluate import TaskTable, as_asked, evaluate, tables
    from mtlscale.training.figures import check_evaluation, measured_figures
    from mtlscale.training.graph import uses
    from mtlscale.training.items import ItemBootstrap
    from mtlscale.training.loop import Progress, Trainer, finish, train
    from mtlscale.training.losses import task_loss
    from mtlscale.training.means import (
        Diverged,
        Means,
        bad_gradient,
        bad_loss,
        bad_weights,
        clip_factors,
        head_weights,
        mean_losses,
        told,
    )
    from mtlscale.training.phases import begin, first_state, partition_of
    from mtlscale.training.pictures import Pictures
    from mtlscale.training.record import counters, now, run_record, traced
    from mtlscale.training.rows import Partition
    from mtlscale.training.seeds import derive_seed
    from mtlscale.training.select import Selection
    from mtlscale.training.session import Mover, Session, schedule_factor
    from mtlscale.training.sources import SupervisedSource, sparse_embeddings
    from mtlscale.training.tally import Tally, furthest
    from mtlscale.training.update import StepResult, Update

_HOMES = {
    "mtlscale.training.affinity": ["task_affinity"],
    "mtlscale.training.augment": ["Augment"],
    "mtlscale.training.batches": ["Batches", "made_ahead", "on_device"],
    "mtlscale.training.evaluate": ["TaskTable", "as_asked", "evaluate", "tables"],
    "mtlscale.training.figures": ["check_evaluation", "measured_figures"],
    "mtlscale.training.graph": ["uses"],
    "mtlscale.training.items": ["ItemBootstrap"],
    "mtlscale.training.loop": ["Progress", "Trainer", "finish", "train"],
    "mtlscale.training.tally": ["Tally", "furthest"],
    "mtlscale.training.losses": ["task_loss"],
    "mtlscale.training.means": [
        "Diverged",
        "Means",
        "bad_gradient",
        "bad_loss",
        "bad_weights",
        "clip_factors",
        "head_weights",
        "mean_losses",
        "told",
    ],
    "mtlscale.training.building": ["build_model", "phase_id"],
    "mtlscale.training.phases": ["begin", "first_state", "partition_of"],
    "mtlscale.training.pictures": ["Pictures"],
    "mtlscale.training.record": ["counters", "now", "run_record", "traced"],
    "mtlscale.training.rows": ["Partition"],
    "mtlscale.training.seeds": ["derive_seed"],
    "mtlscale.training.select": ["Selection"],
    "mtlscale.training.session": ["Mover", "Session", "schedule_factor"],
    "mtlscale.training.sources": ["SupervisedSource", "sparse_embeddings"],
    "mtlscale.training.update": ["StepResult", "Update"],
}

__all__ = [
    "Augment",
    "Batches",
    "Diverged",
    "ItemBootstrap",
    "Means",
    "Mover",
    "Partition",
    "Pictures",
    "Progress",
    "Selection",
    "Session",
    "StepResult",
    "SupervisedSource",
    "Tally",
    "TaskTable",
    "Trainer",
    "Update",
    "as_asked",
    "bad_gradient",
    "bad_loss",
    "bad_weights",
    "begin",
    "build_model",
    "check_evaluation",
    "checkpoint",
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
    "told",
    "traced",
    "train",
    "uses",
]

__getattr__ = lazily(__name__, _HOMES)
