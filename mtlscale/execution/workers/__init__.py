"""Ray workers: pool, groups, queue and the driver of one run."""
