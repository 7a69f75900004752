"""Results of searches: winners, spaces and fronts."""
