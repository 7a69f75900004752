"""Comparison of methods over several data sets."""
