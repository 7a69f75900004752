"""Where the numbers of a page come from: versions, hardware, data and the spec of each method."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from mtlscale.records import RunRecord
from mtlscale.report.cells.number_format import counted
from mtlscale.report.report_section import HTML, ReportSection
from mtlscale.report.sections.registry import View, section


@section("facts", order=-110, formats=(HTML,))
def facts(view: View) -> Iterator[ReportSection]:
    """Yield what a page begins with: how much there is, and how new it is."""
    records = view.records
    status = Counter(record.status for record in records)
    texts = [
        counted(len(view.tables), "data set"),
        counted(len({record.method for record in records}), "method"),
        counted(len({record.seed for record in records}), "seed"),
        f"{status['finished']} of {counted(len(records), 'run')} finished",
        *(f"{status[bad]} {bad}" for bad in ("failed", "diverged") if status[bad]),
    ]
    if last_end := max((record.finished for record in records), default=""):
        texts.append(f"last run ended {last_end[:16].replace('T', ' ')} UTC")
    yield ReportSection(texts=texts)


@section("provenance", order=920, formats=(HTML,))
def provenance(view: View) -> Iterator[ReportSection]:
    """Yield the details of all runs."""
    records = view.records
    details = {
        "mtlscale revision": {record.revision for record in records if record.revision},
        "hardware": {record.hardware for record in records if record.hardware},
        "workers per run": {str(record.workers) for record in records},
        "versions": {f"{name} {version}" for record in records for name, version in record.versions.items()},
        **{f"fingerprint of {name}": {record.fingerprint for record in runs} for name, runs in view.runs.items()},
    }
    yield ReportSection(terms={name: ", ".join(sorted(texts)) or "not recorded" for name, texts in details.items()})


@section("specs", order=921, formats=(HTML,))
def specs(view: View) -> Iterator[ReportSection]:
    """Yield the spec of each method's first run on a data set; those of its other seeds differ in nothing else."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # ten times as fast
    for dataset, runs in view.runs.items():
        first_runs: dict[str, RunRecord] = {}
        for record in runs:
            first_runs.setdefault(record.method, record)
        texts = {
            method: yaml.dump(record.spec, Dumper=dumper, sort_keys=False, allow_unicode=True)
            for method, record in first_runs.items()
        }
        yield ReportSection(title=f"Specs on {dataset}", terms=texts)
