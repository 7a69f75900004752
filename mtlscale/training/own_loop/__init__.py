"""What a training loop of one's own hands over, read and checked for `TaskBalancer`: parameters, hooks and losses."""
