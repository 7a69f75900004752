"""Trained models for use elsewhere: folders with everything that inference needs, without Ray and MLflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtlscale.lazy import lazily

if TYPE_CHECKING:
    from mtlscale.inference.description import MODEL, Description, read_description
    from mtlscale.inference.exporting.write import export
    from mtlscale.inference.model import ExportedModel, load_model
    from mtlscale.inference.predictions import Prediction

__all__ = [
    "MODEL",
    "Description",
    "ExportedModel",
    "Prediction",
    "export",
    "load_model",
    "read_description",
]

__getattr__ = lazily(__name__)
