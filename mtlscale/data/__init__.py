"""Prepared data: the form on disk, batches, the order of samples, splits, and the workers that share them."""

from mtlscale.lazy import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "SAMPLERS": ".sampling.sampler",
        "Batch": ".batches",
        "EpochSampler": ".sampling.sampler",
        "Losses": ".batches",
        "Manifest": ".readers.prepared",
        "Outputs": ".batches",
        "PreparedData": ".readers.prepared",
        "Samples": ".batches",
        "SourceInfo": ".readers.prepared",
        "WindowSampler": ".sampling.sampler",
        "Workers": ".distributed",
        "carve_validation": ".sampling.splits",
        "halves": ".sampling.sampler",
        "hash_split": ".sampling.splits",
        "labelled": ".batches",
        "load_prepared": ".readers.prepared",
        "read_manifest": ".readers.prepared",
        "slice_for": ".sampling.sampler",
        "uniform_hash": ".sampling.splits",
    },
)
