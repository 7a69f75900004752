"""Workers, the queue they pull from, the ways to start them, and the driver of one run."""
