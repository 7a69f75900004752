"""The samples of each step: order, splits, training fraction, label noise and views."""
