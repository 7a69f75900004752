"""Baselines without a network, one file each."""
