"""Architectures, which decide how tasks share parameters.

There is one module per architecture, named as in experiment files. Other packages use the names re-exported here.
"""

from mtlscale.architectures.contract import (
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
from mtlscale.architectures.memory_layout import channels_last
from mtlscale.architectures.phases import TURN_SETTINGS, Found, NetworkSource, Phase, Share, Source, Turn
from mtlscale.architectures.token_rows import of_tokens
from mtlscale.renamed import moved_names
from mtlscale.solvers import conflict_mask

__all__ = [
    "TURN_SETTINGS",
    "Architecture",
    "Found",
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
    "encoder_head",
    "linear_head",
    "map_staged",
    "of_tokens",
    "of_vectors",
    "pooled",
    "staged",
]

# The old place of these names, for one release.
__getattr__ = moved_names(__name__, {"mtlscale.nas": ["Genotype", "darts_flops", "darts_parameters"]})
