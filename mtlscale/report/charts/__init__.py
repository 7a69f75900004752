"""Charts of results, for files and for pages."""
