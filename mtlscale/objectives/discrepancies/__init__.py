"""Distances between a source and a target domain, one file per objective."""
