"""Readers of tables as other programs write them: packing, encodings, dialects of CSV and ARFF, types of Arrow."""
