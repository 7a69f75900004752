"""The columns of a leaderboard: a column, or a family that is computed together, is one file of this folder."""
