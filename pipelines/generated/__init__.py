"""Synthetic data sets, one file per pipeline."""
