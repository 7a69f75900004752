"""Steps of image pipelines."""
