"""Architectures, which decide how tasks share parameters.

There is one module per architecture, named as in experiment files. Other packages use the names re-exported here.
"""

from mtlscale.lazy import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "TURN_SETTINGS": ".phases",
        "Architecture": ".contract",
        "EpochView": ".hooks",
        "HeadMaker": ".contract",
        "Hooks": ".hooks",
        "LabelledData": ".hooks",
        "MultiTaskModule": ".contract",
        "NetworkSource": ".phases",
        "OptimizerSpec": ".phases",
        "Phase": ".phases",
        "PhaseOutput": ".phases",
        "Share": ".phases",
        "Source": ".phases",
        "StepView": ".hooks",
        "Turn": ".phases",
        "channels_last": ".memory_layout",
        "conflict_mask": "mtlscale.solvers",
        "encoder_head": ".contract",
        "linear_head": ".contract",
        "map_staged": ".contract",
        "of_tokens": ".contract",
        "of_vectors": ".contract",
        "pooled": ".contract",
        "staged": ".contract",
    },
)
