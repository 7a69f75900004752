"""Architectures, which decide how tasks share parameters.

There is one module per architecture, named as in experiment files. Other packages use the names re-exported here.
"""

from mtlscale.architectures.capabilities import (
    AfterTraining,
    AllowsNegative,
    BeginsEpochs,
    DiscardsSteps,
    EndsEpochs,
    ExtraParameters,
    FitsData,
    FollowsLosses,
    JointBackward,
    KeepsMemory,
    KnowsEpochs,
    LabelledData,
    LossSources,
    MeasuresAffinity,
    NeedsTarget,
    Penalised,
    ReadsOtherTasks,
    ReadsUnlabelled,
    SeesCompanion,
    SelectsByLoss,
    TakesPreferences,
    UpdatesItself,
    VaryingRepresentation,
    WeighsTasks,
    capability,
    extra_parameters,
)
from mtlscale.architectures.contract import (
    Architecture,
    HeadMaker,
    MultiTaskModule,
    encoder_head,
    linear_head,
    map_staged,
    of_vectors,
    pooled,
    staged,
)
from mtlscale.architectures.memory_layout import channels_last
from mtlscale.architectures.phases import (
    TURN_SETTINGS,
    NetworkSource,
    OptimizerSpec,
    Phase,
    PhaseOutput,
    Share,
    Source,
    Turn,
)
from mtlscale.architectures.token_rows import of_tokens
from mtlscale.renamed import renamed_names
from mtlscale.solvers import conflict_mask

__all__ = [
    "TURN_SETTINGS",
    "AfterTraining",
    "AllowsNegative",
    "Architecture",
    "BeginsEpochs",
    "DiscardsSteps",
    "EndsEpochs",
    "ExtraParameters",
    "FitsData",
    "FollowsLosses",
    "HeadMaker",
    "JointBackward",
    "KeepsMemory",
    "KnowsEpochs",
    "LabelledData",
    "LossSources",
    "MeasuresAffinity",
    "MultiTaskModule",
    "NeedsTarget",
    "NetworkSource",
    "OptimizerSpec",
    "Penalised",
    "Phase",
    "PhaseOutput",
    "ReadsOtherTasks",
    "ReadsUnlabelled",
    "SeesCompanion",
    "SelectsByLoss",
    "Share",
    "Source",
    "TakesPreferences",
    "Turn",
    "UpdatesItself",
    "VaryingRepresentation",
    "WeighsTasks",
    "capability",
    "channels_last",
    "conflict_mask",
    "encoder_head",
    "extra_parameters",
    "linear_head",
    "map_staged",
    "of_tokens",
    "of_vectors",
    "pooled",
    "staged",
]

# The old places of these names, and old names, for one release.
__getattr__ = renamed_names(
    __name__,
    {
        "Found": "PhaseOutput",
        **{name: f"mtlscale.nas.{name}" for name in ("Genotype", "darts_flops", "darts_parameters")},
    },
)
