"""Statistics of results, without text."""
