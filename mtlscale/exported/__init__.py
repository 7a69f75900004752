"""Trained models that can be taken away: a folder with everything that predicting needs, without Ray and MLflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtlscale.lazy import lazily

if TYPE_CHECKING:
    from mtlscale.exported.description import MODEL, Description, read_description
    from mtlscale.exported.model import ExportedModel, load_model
    from mtlscale.exported.predictions import Prediction
    from mtlscale.exported.write import export

__all__ = [
    "MODEL",
    "Description",
    "ExportedModel",
    "Prediction",
    "export",
    "load_model",
    "read_description",
]

__getattr__ = lazily(
    __name__,
    {
        "mtlscale.exported.description": ["MODEL", "Description", "read_description"],
        "mtlscale.exported.model": ["ExportedModel", "load_model"],
        "mtlscale.exported.predictions": ["Prediction"],
        "mtlscale.exported.write": ["export"],
    },
)
