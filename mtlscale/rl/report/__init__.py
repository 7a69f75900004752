"""Report parts for episodes and sample efficiency."""
