"""The diagnosis of a suite as a page, as tables and as its trial."""
