"""Penalties on parameters, one file per objective."""
