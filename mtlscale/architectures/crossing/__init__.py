"""Parallel networks that exchange features, one file per architecture."""
