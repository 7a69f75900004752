"""The training loop: session, phases, loss sources, batches and checkpoints."""
