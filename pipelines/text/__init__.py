"""Text data sets, one file per pipeline."""
