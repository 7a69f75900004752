"""How parameters are shared between tasks. One module per architecture, named as in experiment files."""

from mtlscale.architectures._base import Architecture, MultiTaskModule, linear_head

__all__ = ["Architecture", "MultiTaskModule", "linear_head"]
