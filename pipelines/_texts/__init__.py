"""Steps of text pipelines."""
