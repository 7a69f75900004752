"""Find what is known of an experiment: its data in a home, the records of its own runs, results elsewhere."""
