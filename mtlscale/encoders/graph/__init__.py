"""Encoders of graphs, one file each."""
