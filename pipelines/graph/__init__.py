"""Pipelines of graphs, one file each."""
