# Written by `python tests/house/stubs.py`.
from mtlscale.report.leaderboard import Leaderboard as Leaderboard
from mtlscale.report.results import Results as Results
from mtlscale.report.sweeps.sweeps import Sweep as Sweep
from mtlscale.report.tables.published import Published as Published
from mtlscale.report.tables.published import PublishedTable as PublishedTable
from mtlscale.report.tables.published import read_published as read_published
from mtlscale.report.tables.published_comparison import Comparison as Comparison
from mtlscale.report.tables.published_comparison import compare as compare
from mtlscale.report.tables.table import Table as Table
from mtlscale.report.writing.report_files import write_report as write_report
