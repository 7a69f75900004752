"""The tables of a leaderboard: of each data set, with chosen columns, and as pages show them."""
