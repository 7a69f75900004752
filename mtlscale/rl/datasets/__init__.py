"""Environments with demonstrations, one file per data set."""
