"""Readers of prepared data: device, memory, mapped and stream, and the choice among them."""
