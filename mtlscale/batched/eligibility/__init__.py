"""Which trials may be trained as one batched model."""
