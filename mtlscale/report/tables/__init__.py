"""Tables of results: the leaderboard and what stands beside it."""
