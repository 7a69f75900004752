"""Fixtures of records and of networks for a suite of three tasks."""

from report_records import record, without_epochs
from three_tasks import suite

__all__ = ["record", "suite", "without_epochs"]
