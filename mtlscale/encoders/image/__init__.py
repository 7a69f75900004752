"""Encoders of images, one file each."""
