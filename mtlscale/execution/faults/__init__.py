"""Workers that hang or die: why, and what becomes of their runs."""
