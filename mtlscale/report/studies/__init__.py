"""Sensitivity studies over data sets or settings, and tables of what methods learned."""
