"""Ray clusters and submitted jobs."""
