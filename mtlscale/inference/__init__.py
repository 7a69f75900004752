"""Trained models for use elsewhere: folders with everything that inference needs, without Ray and MLflow."""

from mtlscale.lazy import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "MODEL": ".description",
        "Description": ".description",
        "ExportedModel": ".model",
        "Prediction": ".predictions",
        "export": ".exporting.write",
        "load_model": ".model",
        "read_description": ".description",
    },
)
