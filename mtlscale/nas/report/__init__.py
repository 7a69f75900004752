"""Report parts for searched cells."""
