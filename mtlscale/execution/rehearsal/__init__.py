"""Rehearsal of an experiment beside its results: dry run, forecast, smoke test, and a run done again."""
