"""Tables and feature vectors, one file per pipeline."""
