# A package of its own: spawned processes find tests by this name, and some libraries install one that is called so.
