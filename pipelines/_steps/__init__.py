"""Steps that all pipelines share: blocks, checks, features."""
