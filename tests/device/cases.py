"""What the audit runs; importing this changes nothing."""

from __future__ import annotations

import dataclasses

from frozen.cases import ADAM, BY_GRADIENTS, CASES, SGD, Case

PLACES = ("balancer/", "balancer, shared", "architecture", "objective/", "domains/", "encoder/", "training/")
# Many parameters, some of them large: what is done for each of them, and for a large one by itself, shows.
LARGE = {"name": "mlp", "hidden": [520, 520, 6, 6, 6, 6, 6]}
# Layers so wide that the tasks' gradients of them are not made (mtlscale/training/layers.py).
WIDE = {"name": "mlp", "hidden": [800, 800]}
SHORT = {**SGD, "epochs": 1, "steps_per_epoch": 2}


def audited() -> dict[str, Case]:
    """All that are frozen of balancers, architectures, objectives, encoders and settings, cut to one epoch; a network
    with large parameters, for every balancer that is told of gradients; mixed precision; runs that are resumed."""
    cases = {
        name: dataclasses.replace(case, training={**case.training, "epochs": 1})
        for name, case in CASES.items()
        if name.startswith(PLACES)
    }
    for name in ("equal", "famo", *BY_GRADIENTS):
        cases[f"large/{name}"] = Case("uneven", {"name": name}, SHORT, encoder=LARGE)
    for name in ("mgda", "getmtl"):
        cases[f"wide/{name}"] = Case("uneven", {"name": name}, SHORT, encoder=WIDE, options={"shared": True})
    for name in ("equal", "famo", "mgda", "mgda_ub", "graddrop", "meta_weighting"):
        for amp in ("fp16", "bf16"):
            training = {**SHORT, "dtype": "float32", "amp": amp}
            cases[f"{amp}/{name}"] = Case("uneven", {"name": name}, training, options={"shared": True})
    for name in ("equal", "graddrop", "aamtrl"):
        training = {**ADAM, "epochs": 2, "steps_per_epoch": 2, "checkpoint_seconds": 0}
        cases[f"resume/{name}"] = Case("uneven", {"name": name}, training, flavour="resume")
    small = {"first_episodes": 1, "replay_batch": 3}
    for name in ("sac", "sac_conal", "soft_modules"):  # not frozen: physics round in their own way
        method = {"architecture": {"name": name, **small}, "balancer": "mgda"}
        options = {"task_id": True} if name == "soft_modules" else {}
        cases[f"learning/{name}"] = Case("arms", method, {**SHORT, "optimizer": "adam"}, options=options)
    return cases
