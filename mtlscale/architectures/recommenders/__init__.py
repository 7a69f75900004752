"""Architectures of recommenders, whose tasks follow each other or read the same categories; one file each."""
