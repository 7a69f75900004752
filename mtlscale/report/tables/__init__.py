"""Tables of results: one per data set, and what stands beside it."""
