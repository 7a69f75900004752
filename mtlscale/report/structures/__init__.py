"""Charts of what methods learned: trees, gates, conflicts, affinities."""
