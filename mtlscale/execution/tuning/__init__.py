"""Searches of settings through Ray Tune."""
