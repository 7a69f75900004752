"""Image data sets, one file per pipeline."""
