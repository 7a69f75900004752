"""Readers of raw file formats."""
