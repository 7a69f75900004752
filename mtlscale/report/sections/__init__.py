"""The sections of a report over all data sets: a section is one file of this folder, or of a plugin."""
