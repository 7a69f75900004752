"""What the conformance tests run: one short run for every component that ships, found through the registry.

A component takes its settings and its data from its first frozen case; one that has none is tried with its defaults. So
a new balancer, architecture, objective or encoder is covered without a test of its own. `VARIANTS` adds settings
that change how a step is made.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from frozen import cases
from frozen.cases import CASES, MLP, RESNET, SHARED, Case, Options

from mtlscale.config import component
from mtlscale.config.registry import components

KINDS = ("balancers", "architectures", "objectives", "encoders")
LEARNERS = ("sac", "sac_conal", "soft_modules")  # play episodes: tests/architectures/test_sac.py


@dataclass(frozen=True)
class Subject:
    """A component, or a variant of one, and the run that shows it."""

    name: str
    case: Case
    components: frozenset[str] = field(default=frozenset())


def subjects() -> dict[str, Subject]:
    """Every shipped component and every variant, by name."""
    found = {}
    for kind in KINDS:
        for name in components.names(kind, plugins=False):
            if name not in LEARNERS:
                found[f"{kind}/{name}"] = _case(kind, name)
    for name in components.names("balancers", plugins=False):
        found[f"balancers, shared inputs/{name}"] = dataclasses.replace(_case("balancers", name), options=SHARED)
    found |= VARIANTS
    return {name: Subject(name, _short(case), frozenset(parts(case))) for name, case in found.items()}


def parts(case: Case) -> list[str]:
    """The names of the components that a case has."""
    named = [case.method.get("name"), case.encoder["name"]]
    for kind in ("architecture", "balancer", "objective"):
        value = case.method.get(kind)
        named.append(value["name"] if isinstance(value, dict) else value)
    return [name for name in named if name]


def _case(kind: str, name: str) -> Case:
    """The first frozen single run of a component, else its defaults on vectors."""
    for case in CASES.values():
        if case.flavour == "single" and name in parts(case):
            return case
    if kind == "encoders":
        raise AssertionError(f"encoder {name} has no frozen case: add one to tests/frozen/cases.py")
    method = {"name": name, **cases.NEEDED.get(name, {})}
    staged = kind == "architectures" and component(kind, name).needs_stages
    encoder, data = (RESNET, "images") if staged else (MLP, "uneven")
    return Case(data, method, cases.IMAGES if staged else cases.SGD, encoder=encoder)


def _short(case: Case) -> Case:
    """As few epochs and steps as its phases allow."""
    training = {"steps_per_epoch": 2, **case.training, "epochs": 2, "dtype": "float64"}
    return dataclasses.replace(case, training=training)


def _variant(data: str, method: str | Options, training: Options | None = None, **more: Any) -> Case:
    named = {"name": method} if isinstance(method, str) else method
    return Case(data, named, {**cases.SGD, **(training or {})}, **more)


def _aamtrl(**more: Any) -> Options:
    return {"objective": "aamtrl", **more}


def _tomato(name: str, **more: Any) -> Options:
    return {"name": name, "strength": 0.3, **more}


SEARCHED = {"encoder": {"name": "mlp", "hidden": [6, 5, 4]}, "options": SHARED}
POOLED = {"batches": "pooled", "batch_size": 4, "steps_per_epoch": 8, "weight_decay": 0.01}
DECAY = {"weight_decay": 1e-3, "clip": 1.0, "schedule": "exponential", "decay_steps": 5}
PROXIMAL = {**DECAY, "momentum": 0.0, "lr": 0.1}  # these steps go with plain SGD
MAPS = {"options": cases.MAPS, "encoder": cases.DEEPLAB}
VECTORS = {"options": {"form": "vectors"}, "encoder": {**cases.TOKEN_LAYERS, "dropout": 0.0}}

VARIANTS: dict[str, Case] = {
    # Every way a step comes to an update, with an objective that has state; all of its forms.
    **{
        f"aamtrl/{name}": _variant("uneven", _aamtrl(balancer=name))
        for name in ("equal", "uncertainty", "tchebycheff", "mgda", "mgda_ub", "getmtl", "graddrop", "meta_weighting")
    },
    "aamtrl/printed": _variant(
        "uneven", {"objective": {"name": "aamtrl", "form": "xent", "multiplier_rule": "printed", "uniform": True}}
    ),
    "amtrl/gradnorm": _variant("uneven", {"objective": {"name": "amtrl", "form": "xent"}, "balancer": "gradnorm"}),
    # Proximal steps and penalties, with clipping, weight decay and a schedule.
    "tomato/two topics": _variant(
        "uneven", _tomato("tomato_el", architecture={"name": "tomato", "topics": 2}), PROXIMAL
    ),
    "tomato/layers": _variant(
        "uneven",
        _tomato("tomato_ex", architecture={"name": "tomato", "topics": 3, "layers": 2}),
        PROXIMAL,
        options=SHARED,
    ),
    "tomato/mgda": _variant("uneven", _tomato("tomato_ex", groups="layer", balancer="mgda"), PROXIMAL),
    "mrn": _variant("uneven", {"name": "mrn", "strength": 1e-2, "every": 3}, DECAY),
    "inter_task_l2/getmtl": _variant(
        "uneven", {"name": "inter_task_l2", "strength": 1e-2, "balancer": "getmtl"}, DECAY
    ),
    "cross_stitch/sum": _variant(
        "uneven", {"name": "cross_stitch", "balancer": {"name": "equal", "reduction": "sum"}}, DECAY
    ),
    "ple/pcgrad": _variant("uneven", {"name": "ple", "balancer": "pcgrad"}, DECAY),
    # Distances between domains, wherever they are taken.
    "domains/dann": _variant("domains", {"objective": {"name": "dann", "ramp": 5}}),
    "domains/proxy_a": _variant("domains", {"objective": {"name": "proxy_a", "at": "encoder"}}),
    "domains/cdan": _variant("domains", {"objective": {"name": "cdan", "entropy": True}}),
    "domains/prediction": _variant(
        "domains", {"objective": {"name": "population_correlation", "at": "prediction"}, "balancer": "mgda"}
    ),
    # Searches of a structure.
    "search/conal, partial": _variant(
        "uneven",
        {"architecture": {"name": "conal", "private": "partial", "search_epochs": 1}, "balancer": "mgda"},
        **SEARCHED,
    ),
    "search/conal": _variant("uneven", {"architecture": "conal"}, **SEARCHED),
    "search/conal_pro": _variant(
        "uneven",
        {"architecture": {"name": "conal_pro", "search_epochs": 3, "arch_lr": 0.5, "search_seed": 1}},
        **SEARCHED,
    ),
    "search/dsmtl_al": _variant("uneven", {"architecture": {"name": "dsmtl_al", "search_epochs": 2}}, **SEARCHED),
    "search/tag": _variant("uneven", {"architecture": {"name": "tag", "every": 1}}, **SEARCHED),
    "search/ltb, mgda": _variant(
        "uneven", {"architecture": {"name": "ltb", "search_epochs": 2, "warmup": 0.5}, "balancer": "mgda"}, **SEARCHED
    ),
    # Images that are changed as they are read; the last batch leaves one worker without a sample.
    **{
        f"images/{name}": _variant(
            "images", name, {**cases.IMAGES, "augment": "flip"}, encoder=RESNET, options={"rows": 9}
        )
        for name in ("hps", "mtan", "rotograd", "mgda_ub")
    },
    "maps/conal": _variant(
        "images", {"name": "conal", "search_epochs": 1}, {**cases.IMAGES, "augment": "scale_crop"}, **MAPS
    ),
    "maps/pcgrad": _variant("images", "pcgrad", {**cases.IMAGES, "augment": "scale_crop"}, **MAPS),
    # A label for every token of sentences of unequal length.
    "tokens/getmtl": _variant("tags", "getmtl", encoder={**cases.WORD_CHAR, "dropout": 0.0}),
    "tokens/a worker without a tag": _variant("tags", "uncertainty", {"batch_size": 2}, **VECTORS),
    "tokens/cagrad": _variant(
        "tags", "cagrad", options={"form": "vectors", "shared": True}, encoder=cases.TOKEN_LAYERS
    ),
    # Steps that lack a task, batches of all tasks together, and weights that are kept for some steps.
    **{
        f"pooled/{name}": _variant("uneven", name, POOLED)
        for name in ("equal", "mgda", "graddrop", "uncertainty", "gradnorm", "famo", "mgda_ub", "stl", "dmtrl", "mmoe")
    },
    **{
        f"without labels/{name}": _variant("uneven", name, {"batch_size": 1, "steps_per_epoch": 7}, options=SHARED)
        for name in ("equal", "cagrad", "gradnorm", "graddrop", "mgda_ub")
    },
    "gramian every 3": _variant("uneven", "mgda", {"gramian_every": 3}),
    "gramian every 3, without labels": _variant(
        "uneven", "mgda", {"gramian_every": 3, "batch_size": 1, "steps_per_epoch": 7}, options=SHARED
    ),
    "clipped": _variant("uneven", "getmtl", {"clip": 0.05}),
}
