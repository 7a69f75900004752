"""Encoders of text, one file each."""
