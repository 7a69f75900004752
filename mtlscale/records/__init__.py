"""Records of runs, the home folder that keeps them, and the choice of the best run."""

from mtlscale.records.diagnosis import Diagnosis, Matrix
from mtlscale.records.files import clear_temporaries, is_full, no_space, write_atomically
from mtlscale.records.home import Home, check_folder, new_folders
from mtlscale.records.lease import Holder, Lease, holder_of, take
from mtlscale.records.ledger import Ledger, Outcome, ledgers_of
from mtlscale.records.record import Epoch, FrontPoint, ItemErrors, Metrics, PhaseCost, RunRecord, read_record
from mtlscale.records.run_lookup import (
    FoundRun,
    best_run,
    experiments_with_runs,
    find_run,
    no_such_run,
    runs_of_experiment,
)
from mtlscale.records.scores import NEAR_ZERO, ROUNDING, Score, beats, best, best_so_far, score, score_of
from mtlscale.records.storage import Storage, restore, supplement
from mtlscale.records.storage_lease import StorageLease
from mtlscale.records.submission_schema import Provenance, is_results, records_of_results

__all__ = [
    "NEAR_ZERO",
    "ROUNDING",
    "Diagnosis",
    "Epoch",
    "FoundRun",
    "FrontPoint",
    "Holder",
    "Home",
    "ItemErrors",
    "Lease",
    "Ledger",
    "Matrix",
    "Metrics",
    "Outcome",
    "PhaseCost",
    "Provenance",
    "RunRecord",
    "Score",
    "Storage",
    "StorageLease",
    "beats",
    "best",
    "best_run",
    "best_so_far",
    "check_folder",
    "clear_temporaries",
    "experiments_with_runs",
    "find_run",
    "holder_of",
    "is_full",
    "is_results",
    "ledgers_of",
    "new_folders",
    "no_space",
    "no_such_run",
    "read_record",
    "records_of_results",
    "restore",
    "runs_of_experiment",
    "score",
    "score_of",
    "supplement",
    "take",
    "write_atomically",
]
