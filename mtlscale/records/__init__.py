"""What runs leave behind, where it is kept, and which of them is best."""

from mtlscale.records.files import write_atomically
from mtlscale.records.home import Home
from mtlscale.records.ledger import Ledger, Outcome
from mtlscale.records.record import Epoch, Metrics, PhaseCost, RunRecord, read_record
from mtlscale.records.scores import Score, best, best_so_far, score, score_of
from mtlscale.records.storage import Storage, restore

__all__ = [
    "Epoch",
    "Home",
    "Ledger",
    "Metrics",
    "Outcome",
    "PhaseCost",
    "RunRecord",
    "Score",
    "Storage",
    "best",
    "best_so_far",
    "read_record",
    "restore",
    "score",
    "score_of",
    "write_atomically",
]
