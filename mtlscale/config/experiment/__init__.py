"""Experiment files: the models of their sections, reading, and their expansion into runs."""
