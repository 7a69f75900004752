"""Diagnosis of task relatedness before a sweep."""
