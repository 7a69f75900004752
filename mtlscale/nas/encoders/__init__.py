"""Encoders made of cells, one file each."""
