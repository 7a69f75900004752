"""Domain-adaptation data sets, one file per pipeline."""
