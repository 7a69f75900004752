"""Eligibility of trials for training as one batched model."""
