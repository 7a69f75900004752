"""Fixtures of records."""

from report_records import board_records, record, without_epochs

__all__ = ["board_records", "record", "without_epochs"]
