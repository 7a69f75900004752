"""Prepared data: the form on disk, batches, the order of samples, splits, and the workers that share them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtlscale.lazy import lazily

if TYPE_CHECKING:
    from mtlscale.data.batches import Batch, Losses, Outputs, Samples, labelled
    from mtlscale.data.distributed import Workers
    from mtlscale.data.readers.prepared import Manifest, PreparedData, SourceInfo, load_prepared, read_manifest
    from mtlscale.data.sampling.sampler import SAMPLERS, EpochSampler, WindowSampler, halves, slice_for
    from mtlscale.data.sampling.splits import carve_validation, hash_split, uniform_hash

__all__ = [
    "SAMPLERS",
    "Batch",
    "EpochSampler",
    "Losses",
    "Manifest",
    "Outputs",
    "PreparedData",
    "Samples",
    "SourceInfo",
    "WindowSampler",
    "Workers",
    "carve_validation",
    "halves",
    "hash_split",
    "labelled",
    "load_prepared",
    "read_manifest",
    "slice_for",
    "uniform_hash",
]

__getattr__ = lazily(__name__)
