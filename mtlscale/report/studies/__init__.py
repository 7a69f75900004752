"""Sensitivity studies over data sets or settings."""
