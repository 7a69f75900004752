"""Preparation of data sets through Ray."""
