"""Writing prepared data sets."""
