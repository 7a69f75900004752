"""Runs on the stand-in device, in a process of their own: `python -m device.program CASE ...`, of `device.cases` or,
for batched trials, of `frozen.cases`. Each prints one line of JSON."""

from __future__ import annotations

import json
import sys
import traceback

import torch
from device.audit import audit
from device.batched import audit as audit_batch
from device.cases import audited
from frozen.cases import CASES


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    cases = audited()
    for name in names:
        try:
            result = audit(cases[name]) if name in cases else audit_batch(CASES[name])
        except Exception as error:
            trace = traceback.extract_tb(error.__traceback__)
            own = [f for f in trace if "/mtlscale/" in f.filename] or list(trace)
            last = own[-1]
            text = f"{type(error).__name__}: {error} ({last.filename}:{last.lineno} `{last.line}`)"
            result = {"error": text}
        print(json.dumps({"case": name, **result}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
