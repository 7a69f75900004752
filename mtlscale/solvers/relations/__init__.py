"""Relations between tasks: conflicts, groups and transfer."""
