"""The run: its settings, its built components and its id."""
