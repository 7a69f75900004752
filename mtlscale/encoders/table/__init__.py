"""Encoders of tables and vectors, one file each."""
