"""Access to raw files: folders, archives, hubs, URLs."""
