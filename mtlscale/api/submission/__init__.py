"""Contributed results: writing and validating them."""
