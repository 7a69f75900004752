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
from mtlscale.architectures._layout import channels_last
from mtlscale.architectures._phases import TURN_SETTINGS, Found, NetworkSource, Phase, Share, Source, Turn
from mtlscale.architectures._tokens import of_tokens
from mtlscale.encoders import Genotype, darts_flops, darts_parameters
from mtlscale.solvers import conflict_mask

__all__ = [
    "TURN_SETTINGS",
    "Architecture",
    "Found",
    "Genotype",
    "HeadMaker",
    "LabelledData",
    "MultiTaskModule",
    "NetworkSource",
    "Phase",
    "Share",
    "Source",
    "Turn",
    "channels_last",
    "conflict_mask",
    "darts_flops",
    "darts_parameters",
    "encoder_head",
    "linear_head",
    "map_staged",
    "of_tokens",
    "of_vectors",
    "pooled",
    "staged",
]
