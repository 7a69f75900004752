"""What a preparation says while it goes on."""

from __future__ import annotations

from mtlscale.cli.output.preparation import described


def test_rows_rates_and_bytes_are_said() -> None:
    assert described("decode", 1200, 5000, 30_000_000, 6.0) == (
        "decode, 1,200 of 5,000 rows, 200 rows/s, 30.0 MB written, 5.0 MB/s"
    )
    assert described("read", 0, 5000, 0, 0.0) == "read, 0 of 5,000 rows"
