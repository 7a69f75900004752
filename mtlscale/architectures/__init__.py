"""How parameters are shared between tasks. One module per architecture, named as in experiment files."""

from mtlscale.architectures._base import (
    Architecture,
    HeadMaker,
    MultiTaskModule,
    encoder_head,
    linear_head,
    of_vectors,
    pooled,
    staged,
)

__all__ = [
    "Architecture",
    "HeadMaker",
    "MultiTaskModule",
    "encoder_head",
    "linear_head",
    "of_vectors",
    "pooled",
    "staged",
]
