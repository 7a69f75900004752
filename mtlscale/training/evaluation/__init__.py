"""Evaluation of splits: metrics, epoch selection, bootstrap and robustness."""
