"""Fixtures of records."""

from report_records import board_records, record

__all__ = ["board_records", "record"]
