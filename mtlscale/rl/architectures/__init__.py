"""Architectures that act in environments, one file each."""
