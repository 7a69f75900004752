"""Planning of the runs that are left of an experiment: what is checked, planned, and known of its status."""
