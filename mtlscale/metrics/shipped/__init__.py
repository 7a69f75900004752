"""The shipped metrics, one file per family of them."""
