"""Cells, columns and sheets: what a table is made of before it has a format."""
