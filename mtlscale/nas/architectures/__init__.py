"""Architecture searches, one file per method."""
