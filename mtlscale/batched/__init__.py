"""Training of many small trials as one batched model."""

from mtlscale.lazy import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "BatchedTrainer": ".trainer",
        "CostEstimate": ".eligibility.planning",
    },
)
