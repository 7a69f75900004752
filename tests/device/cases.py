"""What the audit runs; importing this changes nothing."""

from __future__ import annotations

import dataclasses
import re

from frozen.cases import ADAM, BY_GRADIENTS, CASES, NEWEST_BY_GRADIENTS, SGD, Case

PLACES = ("balancer/", "balancer, shared", "architecture", "objective/", "domains/", "encoder/", "training/")
# Many parameters, some of them large: what is done for each of them, and for a large one by itself, shows.
LARGE = {"name": "mlp", "hidden": [520, 520, 6, 6, 6, 6, 6]}
# Layers so wide that the tasks' gradients of them are not made (mtlscale/training/gradients/layerwise_gramian.py).
WIDE = {"name": "mlp", "hidden": [800, 800]}
SHORT = {**SGD, "epochs": 1, "steps_per_epoch": 2}
# Steps of these are alike from the second on, and take long.
COSTLY = ("balancer/", "balancer, shared", "architecture, images", "architecture, cells", "architecture, maps")

# What the default suite leaves to `slow`, since another case there makes the same kind of step: a balancer of gradients
# is told them by `large/`, a kind of balancer has shared inputs once, a structure search of stages runs once, and a
# setting or encoder is met once unless it changes what a step asks for. So is an architecture: with vectors where these
# go through all of its steps, else with labels of images.
SELDOM = re.compile(
    rf"balancer/({'|'.join((*BY_GRADIENTS, *NEWEST_BY_GRADIENTS))})"
    rf"|balancer, shared inputs/(?!(equal|famo|uncertainty|mgda|mgda_ub|graddrop|meta_weighting|gradnorm)$).*"
    r"|architecture, images/(bmtas|branched|cgc|conal|conal_plus|cross_stitch|dsmtl_al|dsmtl_il|dsmtl_jl|hps|ltb|mmoe"
    r"|ple|stl)"
    r"|large/(aligned_mtl|fairgrad|getmtl_exact|getmtl_released|imtl_g|nash_mtl|sdmgrad|upgrad)"
    r"|architecture, maps/.*|architecture, cells/(e2rnas.*|pdarts|pcdarts)|learning/(sac_conal|soft_modules)"
    r"|architecture and balancer/(cgc upgrad|cross_stitch cagrad|mmoe mgda|ple pcgrad|shared_bottom graddrop"
    r"|tomato getmtl)"
    r"|objective/(aamtrl with uncertainty|(inter_task_l2|mrn) with mgda|tomato_e[lx])"
    r"|encoder/textcnn (equal|mgda)|encoder/textcnn, (stl|aamtrl|fast, equal)|encoder/lstm mgda"
    r"|encoder/bilstm, shared inputs, equal|encoder/resnet18, (stem of imagenet|inputs per task)"
    r"|encoder/deeplab_resnet50|encoder/pretrained(_layers)? (mgda|cagrad|pcgrad)|encoder/resnet50"
    r"|encoder/word_char, bilstm, pcgrad"
    r"|training/(adam, weight decay|sgd, weight decay|selection .*|evaluate every 2|small evaluation batches"
    r"|steps per epoch|steps per epoch, many|another seed|own epochs of tasks|patience|clip, stl|gramian every 3, .*"
    r"|gramian every 2, mgda|accumulate 2, (cagrad|uncertainty|meta_weighting)"
    r"|accumulate 2, images|accumulate 3, .*|flip, maps"
    r"|one task, (equal|uncertainty|amtrl))"
    r"|bf16/(famo|mgda_ub|graddrop|meta_weighting)|wide/getmtl|resume/graddrop"
)

# Components that only `slow` cases have, and the default case that makes the same kind of step.
LIKE = {
    "conal_plus": "architecture/conal",  # the same search, with blocks for stages
    # Told the same Gramian, which is then no longer on the device.
    **dict.fromkeys(("aligned_mtl", "fairgrad", "getmtl_exact", "getmtl_released"), "large/mgda"),
    **dict.fromkeys(("imtl_g", "nash_mtl", "sdmgrad", "upgrad"), "large/mgda"),
    **dict.fromkeys(("config", "dual_proj", "ntkmtl", "pcd", "pivrg"), "large/mgda"),
    "db_mtl": "large/moco",  # averages of gradients
    "m_config": "large/moco",
    "modo": "large/meta_weighting",
    "ntkmtl_sr": "large/mgda_ub",
    "consmtl": "large/mgda_ub",  # the same gradients at the representation, differentiated once more
    "pcdarts": "architecture, cells/darts",  # some of the channels through the same mixtures
    "pdarts": "architecture, cells/darts",  # the same search three times, with fewer operations each time
    "e2rnas": "architecture, cells/darts",  # the same mixtures, with more losses
    "e2rnas_pcdarts": "architecture, cells/darts",
    "e2rnas_pdarts": "architecture, cells/darts",
    "sac_conal": "learning/sac",  # branch points in the same networks
    "soft_modules": "learning/sac",
    "resnet50": "encoder/resnet18 mgda",
    "deeplab_resnet50": "encoder/deeplab_resnet18 mgda_ub",
}


def usual() -> list[str]:
    """The names of the cases of the default suite."""
    return [name for name in audited() if not SELDOM.fullmatch(name)]


def audited() -> dict[str, Case]:
    """All that are frozen of balancers, architectures, objectives, encoders and settings, cut to one epoch; a network
    with large parameters, for every balancer that is told of gradients; mixed precision; runs that are resumed."""
    cases = {
        name: dataclasses.replace(case, training={**case.training, "epochs": 1, **_steps(name)})
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


def _steps(name: str) -> dict[str, int]:
    return {"steps_per_epoch": 2} if name.startswith(COSTLY) else {}
