"""The sections of an experiment file as checked models, below runs and searches."""
