"""Mixtures of experts, one file per architecture."""
