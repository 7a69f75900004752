"""The version of mtlscale."""

__version__ = "0.1.0"
