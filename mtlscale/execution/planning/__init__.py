"""From an experiment to the runs that are left: plan, forecast, status, dry run."""
