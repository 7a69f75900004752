"""Search spaces and the trials drawn from them."""
