"""Objectives with a task discriminator, one file each."""
