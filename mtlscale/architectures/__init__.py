"""How parameters are shared between tasks. One module per architecture, named as in experiment files."""

from mtlscale.architectures._base import (
    Architecture,
    HeadMaker,
    LabelledData,
    MultiTaskModule,
    encoder_head,
    linear_head,
    map_staged,
    of_vectors,
    pooled,
    staged,
)
from mtlscale.architectures._phases import TURN_SETTINGS, Found, Phase, Share, Source, Turn
from mtlscale.solvers import conflict_mask

__all__ = [
    "TURN_SETTINGS",
    "Architecture",
    "Found",
    "HeadMaker",
    "LabelledData",
    "MultiTaskModule",
    "Phase",
    "Share",
    "Source",
    "Turn",
    "conflict_mask",
    "encoder_head",
    "linear_head",
    "map_staged",
    "of_vectors",
    "pooled",
    "staged",
]
