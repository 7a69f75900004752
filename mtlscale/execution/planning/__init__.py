"""Planning of the runs that are left of an experiment: plan, forecast, status, dry run."""
