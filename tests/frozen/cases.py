"""What is run: every case by name, as data. Settings are written as in an experiment file.

Runs are as short as they can be while the thing of interest happens: rounding errors, which another order of sums
brings, have to stay far below the tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Options = dict[str, Any]

MLP = {"name": "mlp", "hidden": [6]}
DEEP = {"name": "mlp", "hidden": [7, 5], "activation": "tanh", "dropout": 0.2}
RESNET = {"name": "resnet18", "width": 2, "stem": "small"}
DEEPLAB = {"name": "deeplab_resnet18", "width": 2, "stem": "small", "head_width": 3, "rates": [1, 2]}
DEEPLAB50 = {**DEEPLAB, "name": "deeplab_resnet50", "width": 4}
TEXTCNN = {"name": "textcnn", "dimensions": 5, "filters": 4, "widths": [2, 3]}
# Enough work for the step of its own that TextCNN has on a CPU (2²³ multiplications in the plain convolution).
FAST_TEXTCNN = {"name": "textcnn", "dimensions": 64, "filters": 32, "widths": [3, 4, 5]}
LSTM = {"name": "lstm", "dimensions": 5, "hidden": 4, "dropout": 0.2}
BILSTM = {**LSTM, "name": "bilstm"}
SEGNET = {"name": "segnet", "width": 2}

ADAM = {"epochs": 3, "batch_size": 8, "lr": 1e-2, "dtype": "float64"}
SGD = {**ADAM, "optimizer": "sgd", "momentum": 0.9, "selection": "last"}
PLAIN_SGD = {**ADAM, "optimizer": "sgd", "lr": 0.1}
# Adam would blow up the rounding errors in gradients that are zero, such as those of biases before a normalisation.
IMAGES = {**SGD, "epochs": 2, "batch_size": 4, "lr": 2e-3}
# Fifty layers of a few channels multiply rounding errors by themselves: hardly a step, so that they stay small.
DEEPEST = {**IMAGES, "epochs": 1, "lr": 5e-5}
CHOOSING = {**IMAGES, "selection": "metric", "epochs": 3}


@dataclass(frozen=True)
class Case:
    """One run, or one batch of `trials`: settings by dotted path, `seed` among them.

    data, options: a builder in `frozen.data`. stop: epochs before a run that is resumed is cut off.
    """

    data: str
    method: Options
    training: Options
    options: Options = field(default_factory=dict)
    encoder: Options = field(default_factory=lambda: MLP)
    dropout: float = 0.0
    seed: int = 0
    share: float = 1.0  # of the training samples
    flavour: Literal["single", "two workers", "resume", "batched"] = "single"
    stop: int = 1
    trials: tuple[Options, ...] = ()


CASES: dict[str, Case] = {}


def add(name: str, data: str, method: str | Options, training: Options, **more: Any) -> None:
    assert name not in CASES, name
    CASES[name] = Case(data, {"name": method} if isinstance(method, str) else method, training, **more)


SHARED = {"shared": True}
MAPS = {"maps": True}
LARGE_MAPS = {"maps": True, "size": 64}  # segnet halves a side five times
NEEDED: dict[str, Options] = {"static": {"weights": [0.5, 0.3, 0.2]}}

# -- balancers -----------------------------------------------------------------------------------------------------

BY_LOSSES = (
    "bandit", "dwa", "equal", "excess_mtl", "famo", "gls", "imtl_l", "log_loss", "random_static", "rlw", "static",
    "stch", "svd_reweighting", "tchebycheff", "uncertainty",
)  # fmt: skip
BY_GRADIENTS = (
    "aligned_mtl", "auto_lambda", "cagrad", "conflict_noticed", "fairgrad", "getmtl", "getmtl_exact", "graddrop",
    "gradnorm", "gradvac", "imtl_g", "meta_weighting", "mgda", "mgda_ub", "moco", "nash_mtl", "pcgrad", "sdmgrad",
    "upgrad",
)  # fmt: skip

for name in (*BY_LOSSES, *BY_GRADIENTS):
    add(f"balancer/{name}", "uneven", {"name": name, **NEEDED.get(name, {})}, SGD)
add("balancer/getmtl_released", "uneven", "getmtl_released", ADAM)
add("balancer/noise_oracle", "uneven", "noise_oracle", SGD)  # no task has noise: equal weights
NEWEST_BY_LOSSES = ("go4align", "igb", "ldc_mtl")
NEWEST_BY_GRADIENTS = (
    "config", "consmtl", "db_mtl", "dual_proj", "m_config", "modo", "ntkmtl", "ntkmtl_sr", "pcd", "pivrg",
)  # fmt: skip
for name in (*NEWEST_BY_LOSSES, *NEWEST_BY_GRADIENTS):
    add(f"balancer/{name}", "uneven", name, SGD, options=SHARED if name in ("consmtl", "ntkmtl_sr") else {})
for name, of in (("smooth", "famo"), ("smooth", "cagrad"), ("log_losses", "equal"), ("log_losses", "mgda")):
    add(f"balancer/{name} of {of}", "uneven", {"name": name, "of": of}, SGD)
for name in ("linear_scalarization", "pbi", "cosmos", "epo", "pmgda"):
    add(f"balancer/{name}", "uneven", {"name": name, "preference": [0.5, 0.3, 0.2]}, SGD)
for of in ("equal", "mgda"):
    add(f"balancer/look_ahead of {of}", "uneven", {"name": "look_ahead", "of": of}, SGD, dropout=0.3)
for name in ("equal", "uncertainty", "famo", *BY_GRADIENTS):
    training = {**ADAM, "selection": "last"}
    add(f"balancer, shared inputs/{name}", "uneven", name, training, options=SHARED, dropout=0.3)

# One sample a step: every fifth step lacks a task.
SPARSE = {**SGD, "batch_size": 1, "steps_per_epoch": 7, "epochs": 2}
for name in ("equal", "uncertainty", "famo", "mgda", "gradnorm", "graddrop", "mgda_ub", "meta_weighting"):
    add(f"balancer, steps without labels/{name}", "uneven", name, SPARSE, options=SHARED)
for name in ("cagrad", "mgda"):
    training = {**SPARSE, "gramian_every": 2}
    add(f"balancer, steps without labels/{name}, gramian every 2", "uneven", name, training, options=SHARED)
for name in ("stl", "gradvac", "aamtrl"):
    add(f"balancer, steps without labels, inputs per task/{name}", "uneven", name, SPARSE)

# -- architectures -------------------------------------------------------------------------------------------------

VECTORS: dict[str, Options] = {
    "aligned": {},
    "bmtas": {"search_epochs": 2, "warmup": 0.5},
    "branched": {"points": [1, 3, 3]},
    "cgc": {"top": 4},
    "conal": {"arch_lr": 0.3},
    "conal_pro": {"arch_lr": 0.3, "search_epochs": 4},
    "constant": {},
    "cross_stitch": {"top": 4},
    "dmtrl": {"top": 4, "warmup": 1},
    "dsmtl_al": {"arch_lr": 0.3},
    "dsmtl_il": {"private_epochs": 2},
    "dsmtl_jl": {},
    "hps": {},
    "ltb": {"search_epochs": 2, "warmup": 0.5},
    "mmoe": {"experts": 2, "top": 4},
    "ple": {"top": 4},
    "separate": {"top": 4},
    "shared_bottom": {"top": 4},
    "stl": {},
    "tag": {"every": 2},
    "tomato": {"topics": 2, "top": 4},
    "topicwise": {"options": {"topics": 2, "within": "mmoe", "width": 4, "options": {"experts": 2, "top": 3}}},
}
STAGED: dict[str, Options] = {
    "afa": {"reduction": 2},
    "bmtas": {"search_epochs": 2, "warmup": 0.5},
    "branched": {"points": [2, 4]},
    "cgc": {"top": 4},
    # In the first step all branch points are worth the same: Adam would divide rounding by itself.
    "conal": {"search_epochs": 1, "arch_lr": 0.3, "arch_optimizer": "sgd"},
    "conal_plus": {"search_epochs": 1, "blocks": 1, "arch_lr": 0.3, "arch_optimizer": "sgd"},
    "cross_stitch": {},
    "dsmtl_al": {"search_epochs": 3, "arch_lr": 0.3, "arch_optimizer": "sgd"},
    "dsmtl_il": {"fallback": "train"},
    "dsmtl_jl": {"after": 3},
    "hps": {},
    "ltb": {"search_epochs": 2, "warmup": 0.5},
    "hps_plus": {"blocks": 1},
    "maxroam": {},
    "mmoe": {"top": 4, "experts": 2},
    "mtan": {},
    "mtl_nas": {"search_epochs": 1, "arch_lr": 0.1},
    "nddr_cnn": {},
    "ple": {"top": 4},
    "rotograd": {},
    "stl": {},
    "tsn": {"code": 4, "top": 5},
}

for name, options in VECTORS.items():
    add(f"architecture/{name}", "uneven", {"architecture": {"name": name, **options}}, ADAM, encoder=DEEP, dropout=0.2)
add("architecture/linear", "uneven", {"architecture": "linear"}, ADAM)
add("architecture/forest", "uneven", {"architecture": {"name": "forest", "trees": 10}}, ADAM)
add("architecture/boosting", "uneven", {"architecture": "boosting"}, ADAM)
for name in ("random_actions", "scripted_expert"):
    add(f"architecture/{name}", "arms", {"architecture": name}, ADAM)
add("architecture/single", "many", {"name": "single", "top": 4}, ADAM, encoder=DEEP, dropout=0.2)
for name, balancer in (
    ("cgc", "upgrad"), ("cross_stitch", "cagrad"), ("mmoe", "mgda"), ("ple", "pcgrad"), ("shared_bottom", "graddrop"),
    ("tomato", "getmtl"), ("topicwise", "meta_weighting"), ("dmtrl", "imtl_g"),
):  # fmt: skip
    method = {"architecture": {"name": name, **VECTORS[name]}, "balancer": balancer}
    add(f"architecture and balancer/{name} {balancer}", "uneven", method, SGD, options=SHARED)
add("architecture and balancer/single getmtl", "many", {"architecture": "single", "balancer": "getmtl"}, SGD)
for name, options in STAGED.items():
    training = CHOOSING if name in ("hps", "stl") else IMAGES
    add(f"architecture, images/{name}", "images", {"name": name, **options}, training, encoder=RESNET)
for name in ("hps", "nddr_cnn", "tsn"):
    add(f"architecture, maps/{name}", "images", {"name": name, **STAGED[name]}, IMAGES, options=MAPS, encoder=DEEPLAB)
add("architecture, maps/mtan segnet", "images", "mtan", DEEPEST, options=LARGE_MAPS, encoder=SEGNET, seed=2)

# -- cells ---------------------------------------------------------------------------------------------------------

CELLS = {"name": "darts_cells", "cells": 2, "channels": 2, "cutout": 3, "genotype": "S2"}
SEARCH = {"search_cells": 2, "search_channels": 2, "search_epochs": 1, "arch_lr": 0.1, "auxiliary": 0.0}
SHARES = {"parameter_unit": None, "flops_unit": None, "target_parameters": 0.3}
SEARCHED: dict[str, Options] = {
    "cell_network": {"auxiliary": 0.4},
    "darts": {**SEARCH, "order": "second"},
    "e2rnas": {**SEARCH, **SHARES},
    "pcdarts": {**SEARCH, "part": 2, "rest": 0.0},
    "pdarts": {**SEARCH, "search_epochs": 3, "deeper": 0, "rest": 0.0},
    "e2rnas_pcdarts": {**SEARCH, **SHARES, "part": 2, "rest": 0.0},
    "e2rnas_pdarts": {**SEARCH, **SHARES, "search_epochs": 3, "deeper": 0, "rest": 0.0},
}
for name, options in SEARCHED.items():
    training = {**IMAGES, "epochs": 1, "batch_size": 8}
    add(f"architecture, cells/{name}", "pictures", {"name": name, **options}, training, encoder=CELLS)
large = {"name": "darts_cells_imagenet", "cells": 2, "channels": 2}
add("encoder/darts_cells_imagenet", "images", "mgda", {**IMAGES, "epochs": 1}, encoder=large)
add("encoder/darts_cells", "images", "mgda", {**IMAGES, "epochs": 1}, encoder=CELLS)

# -- objectives ----------------------------------------------------------------------------------------------------

TOMATO = {"name": "tomato", "topics": 2, "top": 4}
OBJECTIVES: dict[str, Options] = {
    "aamtrl": {"name": "aamtrl"},
    "aamtrl, uniform, xent": {"name": "aamtrl", "uniform": True, "form": "xent", "multiplier_rule": "printed"},
    "aamtrl with mgda": {"name": "aamtrl", "balancer": "mgda"},
    "aamtrl with uncertainty": {"name": "aamtrl", "balancer": "uncertainty"},
    "aamtrl with mgda_ub": {"name": "aamtrl", "balancer": "mgda_ub"},
    "amtrl": {"name": "amtrl", "strength": 0.5},
    "amtrl, watching": {"name": "amtrl", "strength": 0.0, "balancer": "graddrop"},
}
for name, method in OBJECTIVES.items():
    add(f"objective/{name}", "uneven", method, SGD, dropout=0.2)
for name in ("inter_task_l2", "mrn"):
    method = {"name": name, "architecture": {"name": "shared_bottom", "top": 4}, "strength": 0.01}
    more = {"every": 2} if name == "mrn" else {}
    add(f"objective/{name}", "many", {**method, **more}, SGD)
    add(f"objective/{name} with mgda", "many", {**method, **more, "balancer": "mgda"}, SGD, dropout=0.2)
for name in ("tomato_el", "tomato_ex"):
    method = {"name": name, "architecture": TOMATO, "strength": 0.05}
    add(f"objective/{name}", "many", method, PLAIN_SGD, options={"soft": True}, dropout=0.2)
    method = {**method, "architecture": {**TOMATO, "layers": 2, "task_layer": False}, "groups": "layer"}
    training = {**PLAIN_SGD, "schedule": "exponential", "decay_steps": 3, "weight_decay": 1e-3}
    add(f"objective/{name}, layers, with pcgrad", "many", {**method, "balancer": "pcgrad"}, training)

# -- encoders ------------------------------------------------------------------------------------------------------

for name in ("equal", "mgda"):
    add(f"encoder/textcnn {name}", "text", name, ADAM, encoder={**TEXTCNN, "dropout": 0.2})
    fast = {"rows": 36, "length": 24}
    training = {**SGD, "batch_size": 16, "epochs": 2}
    add(f"encoder/textcnn, fast, {name}", "text", name, training, options=fast, encoder=FAST_TEXTCNN)
    add(f"encoder/lstm {name}", "text", name, SGD, encoder=LSTM)
    add(f"encoder/bilstm, shared inputs, {name}", "text", name, SGD, options=SHARED, encoder=BILSTM)
add("encoder/lstm, shared inputs, pcgrad", "text", "pcgrad", SGD, options=SHARED, encoder=LSTM)
add("encoder/bilstm, mean, cagrad", "text", "cagrad", SGD, encoder={**BILSTM, "pooling": "mean"})
add("encoder/textcnn, shared inputs, pcgrad", "text", "pcgrad", SGD, options=SHARED, encoder=TEXTCNN)
add("encoder/textcnn, stl", "text", "stl", SGD, encoder=TEXTCNN)
add("encoder/textcnn, aamtrl", "text", "aamtrl", SGD, encoder=TEXTCNN, dropout=0.2)
add("encoder/textcnn_mlp", "text", "mgda", SGD, encoder={**TEXTCNN, "name": "textcnn_mlp", "hidden": [5, 4]})
add("encoder/averaged", "text", "mgda", SGD, encoder={"name": "averaged", "dimensions": 5, "hidden": [4]})
attentive = {"name": "transformer", "dimensions": 6, "layers": 2, "heads": 2, "inner": 5}
add("encoder/transformer", "text", "mgda", SGD, encoder=attentive)
for name, more in (
    ("equal", {}),
    ("mgda", {"tune": "full"}),
    ("pcgrad", {"tune": "lora", "rank": 2, "pooling": "first"}),
):
    encoder = {"name": "pretrained", **more}  # on a tiny model that is made for it
    add(f"encoder/pretrained {name}", "text", name, SGD, options={"words": 16}, encoder=encoder)
WORD_CHAR = {"name": "word_char", "dimensions": 5, "char_dimensions": 3, "char_features": 4, "state": 3, "hidden": [4]}
TOKEN_LAYERS = {"name": "token_layers", "hidden": [5, 4]}
add("encoder/word_char, cnn, equal", "tags", "equal", SGD, encoder=WORD_CHAR)
add("encoder/word_char, bilstm, pcgrad", "tags", "pcgrad", SGD, encoder={**WORD_CHAR, "chars": "bilstm"})
add("encoder/token_layers, mgda", "tags", "mgda", SGD, options={"form": "vectors"}, encoder=TOKEN_LAYERS)
add("encoder/token_layers, ltb", "tags", {"name": "ltb", "search_epochs": 2}, SGD, options={"form": "vectors"},
    encoder=TOKEN_LAYERS)  # fmt: skip
for name, tune in (("equal", "frozen"), ("mgda", "full"), ("cagrad", "lora")):
    encoder = {"name": "pretrained_layers", "tune": tune, "rank": 2, "hidden": [4]}
    add(
        f"encoder/pretrained_layers {name}", "tags", name, SGD, options={"form": "pieces", "words": 16}, encoder=encoder
    )
add("architecture/frequent_tag", "tags", {"architecture": "frequent_tag"}, ADAM, encoder=WORD_CHAR)
add("two workers/word_char", "tags", "getmtl", SGD, encoder={**WORD_CHAR, "dropout": 0.0}, flavour="two workers")
add("resume/word_char", "tags", "famo", {**ADAM, "checkpoint_seconds": 0}, encoder=WORD_CHAR, flavour="resume")
EMBEDDING_MLP = {"name": "embedding_mlp", "dimensions": 3, "hidden": [5, 4]}
DEEPFM = {"name": "deepfm", "dimensions": 3, "hidden": [5], "dropout": 0.2}
DCN_V2 = {"name": "dcn_v2", "dimensions": 3, "hidden": [5]}
SHOP = {**SGD, "epochs": 2}
add("encoder/embedding_mlp, mgda", "shop", "mgda", SHOP, encoder=EMBEDDING_MLP)
add("encoder/deepfm, uncertainty", "shop", "uncertainty", SHOP, encoder=DEEPFM)
add("encoder/dcn_v2, pcgrad", "shop", "pcgrad", SHOP, encoder={**DCN_V2, "rank": 2, "structure": "parallel"})
SHOPS: dict[str, Options] = {
    "esmm": {"top": 4},
    "aitm": {"top": 4, "chain": ["click", "buy", "spent"]},
    "pepnet": {"domain": ["item"], "personal": ["user", "item"], "hidden": [4, 3]},
    "stem": {"top": 4, "own": 2},
}
for name, options in SHOPS.items():
    more = {"options": {"spent": False}} if name == "esmm" else {}
    method = {"architecture": {"name": name, **options}}
    add(f"architecture, categories/{name}", "shop", method, SHOP, encoder=EMBEDDING_MLP, dropout=0.2, **more)
    method = {**method, "balancer": "mgda"}
    add(f"architecture, categories/{name} mgda", "shop", method, SHOP, encoder=EMBEDDING_MLP, **more)
method = {"name": "behavioral_calibrator", "chain": ["click", "buy"]}
add("objective/behavioral_calibrator", "shop", method, SHOP, encoder=EMBEDDING_MLP)
MPNN = {"name": "mpnn", "width": 4, "rounds": 2}
SCHNET = {"name": "schnet", "width": 4, "rounds": 2, "gaussians": 5}
POSITIONS = {"positions": True}
add("encoder/mpnn, mgda", "molecules", "mgda", SHOP, encoder=MPNN)
add("encoder/mpnn, branched", "molecules", {"name": "branched", "points": [1, 2, 4]}, SHOP, encoder=MPNN)
add("encoder/schnet, pcgrad", "molecules", "pcgrad", SHOP, options=POSITIONS, encoder=SCHNET)
add("two workers/mpnn", "molecules", "cagrad", SHOP, encoder=MPNN, flavour="two workers")
add("encoder/resnet18 mgda", "images", "mgda", IMAGES, encoder=RESNET)
imagenet = {**RESNET, "stem": "imagenet"}
add(
    "encoder/resnet50",
    "images",
    "equal",
    {**DEEPEST, "batch_size": 8},
    options={"size": 96},  # the last layers normalise over 72 places: over four, rounding is multiplied by 1e9
    encoder={"name": "resnet50", "width": 4, "bottleneck": 3},
)
add("encoder/resnet18, stem of imagenet", "images", "equal", IMAGES, options={"size": 64}, encoder=imagenet)
add("encoder/resnet18, inputs per task", "images", "cagrad", CHOOSING, options={"shared": False}, encoder=RESNET)
add("encoder/deeplab_resnet18 mgda_ub", "images", "mgda_ub", IMAGES, options=MAPS, encoder=DEEPLAB)
add("encoder/deeplab_resnet50", "images", "pcgrad", DEEPEST, options=MAPS, encoder=DEEPLAB50, seed=2)
add("encoder/segnet", "images", "uncertainty", DEEPEST, options=LARGE_MAPS, encoder=SEGNET, seed=1)

# -- training settings ---------------------------------------------------------------------------------------------

TRAINING: dict[str, tuple[str, Options]] = {
    "adamw": ("mgda", {**ADAM, "optimizer": "adamw", "weight_decay": 0.05}),
    "adam, weight decay": ("equal", {**ADAM, "weight_decay": 0.05}),
    "sgd, weight decay": ("uncertainty", {**SGD, "weight_decay": 0.05}),
    "exponential": ("getmtl", {**ADAM, "schedule": "exponential", "decay_rate": 0.8, "decay_steps": 3}),
    "cosine": ("equal", {**SGD, "schedule": "cosine"}),
    "clip": ("equal", {**SGD, "clip": 0.05}),
    "clip, by gradients": ("pcgrad", {**SGD, "clip": 0.05}),
    "clip, stl": ("stl", {**SGD, "clip": 0.05}),
    "patience": ("equal", {**ADAM, "lr": 0.3, "epochs": 12, "patience": 1}),
    "selection by loss": ("mgda", {**ADAM, "lr": 0.05, "epochs": 4, "selection": "loss"}),
    "selection of the last": ("stl", {**ADAM, "lr": 0.05, "selection": "last"}),
    "own epochs of tasks": ("stl", {**ADAM, "lr": 0.1, "epochs": 5}),
    "own epochs of tasks, patience": ("separate", {**ADAM, "lr": 0.3, "epochs": 12, "patience": 1}),
    "evaluate every 2": ("dwa", {**ADAM, "evaluate_every": 2}),
    "gramian every 2, mgda": ("mgda", {**SGD, "gramian_every": 2}),
    "gramian every 2, cagrad": ("cagrad", {**SGD, "gramian_every": 2}),
    "gramian every 3, gradnorm": ("gradnorm", {**SGD, "gramian_every": 3}),
    "steps per epoch": ("nash_mtl", {**SGD, "steps_per_epoch": 3}),
    "steps per epoch, many": ("rlw", {**SGD, "steps_per_epoch": 7, "epochs": 2}),
    "small evaluation batches": ("equal", {**SGD, "eval_batch_size": 3}),
    "diverges": ("pcgrad", {**ADAM, "optimizer": "sgd", "lr": 1e200}),
}
for name, (method, training) in TRAINING.items():
    add(f"training/{name}", "uneven", method, training, dropout=0.1 if method in ("rlw", "getmtl") else 0.0)
for parts in (2, 3):
    for name in ("equal", "mgda", "cagrad", "uncertainty", "graddrop", "meta_weighting"):
        shared = {"shared": (parts == 2) == (name in ("mgda", "graddrop", "meta_weighting"))}
        training = {**SGD, "accumulate": parts, "epochs": 2}
        add(f"training/accumulate {parts}, {name}", "uneven", name, training, options=shared)
    training = {**SGD, "accumulate": parts, "gramian_every": parts}
    add(f"training/accumulate {parts}, aamtrl", "uneven", {"name": "aamtrl", "balancer": "mgda"}, training, dropout=0.2)
add("training/accumulate 2, stl", "uneven", "stl", {**SGD, "accumulate": 2}, dropout=0.2)
add("training/accumulate 2, images", "images", "equal", {**IMAGES, "accumulate": 2}, encoder=RESNET)
add("training/a NaN in the data", "uneven", "mgda", SGD, options={"poison": True})
add("training/flip", "images", "equal", {**IMAGES, "augment": "flip"}, encoder=RESNET)
add("training/flip, maps", "images", "mgda", {**IMAGES, "augment": "flip"}, options=MAPS, encoder=DEEPLAB)
add("training/crop, maps", "images", "cagrad", {**IMAGES, "augment": "scale_crop"}, options=MAPS, encoder=DEEPLAB)
add("training/channels last", "images", "equal", {**IMAGES, "channels_last": True}, encoder=RESNET)
for name in ("equal", "mgda", "uncertainty", "stl", "amtrl"):
    add(f"training/one task, {name}", "many", name, SGD, options={"sizes": [21]}, dropout=0.2)
add("training/another seed", "uneven", "graddrop", SGD, seed=7, dropout=0.3)

# -- two workers ---------------------------------------------------------------------------------------------------

WORKERS: dict[str, Options] = {
    **{name: {"name": name} for name in ("equal", "mgda_ub", "graddrop", "aamtrl", "meta_weighting", "uncertainty")},
    "cagrad, gramian every 2": {"name": "cagrad", "training": {"gramian_every": 2}},
    "mgda, accumulate 2": {"name": "mgda", "training": {"accumulate": 2}},
    "mmoe getmtl": {"architecture": {"name": "mmoe", "experts": 2, "top": 4}, "balancer": "getmtl"},
    "stl": {"name": "stl", "training": {"clip": 0.1}},
}
for name, method in WORKERS.items():
    add(f"two workers/{name}", "uneven", method, SGD, flavour="two workers", dropout=0.2)
for name in ("getmtl", "pcgrad", "mgda_ub"):
    add(f"two workers/{name}, shared inputs", "uneven", name, ADAM, options=SHARED, flavour="two workers")
method = {"name": "tomato_ex", "architecture": TOMATO}
add("two workers/tomato_ex", "many", method, PLAIN_SGD, flavour="two workers")
for name in ("equal", "mgda"):
    method = {"name": "inter_task_l2", "architecture": {"name": "shared_bottom", "top": 4}, "balancer": name}
    add(f"two workers/inter_task_l2 {name}", "many", method, SGD, flavour="two workers")
add("two workers/steps without labels", "uneven", "cagrad", SPARSE, options=SHARED, flavour="two workers")
add("two workers/textcnn", "text", "mgda", SGD, encoder=TEXTCNN, flavour="two workers")
training = {**IMAGES, "augment": "flip"}  # the last batch has one sample, so that a worker has none
for name in ("mtan", "rotograd", "mgda"):
    more = {"options": {"rows": 9}, "encoder": RESNET}
    add(f"two workers/{name}, images", "images", name, training, flavour="two workers", **more)

# -- runs that are resumed -----------------------------------------------------------------------------------------

CUT = {"checkpoint_seconds": 0}
for name in ("equal", "famo", "gradnorm", "aamtrl", "meta_weighting", "stl", "rlw", "dmtrl"):
    add(f"resume/{name}", "uneven", name, {**ADAM, **CUT}, dropout=0.3, flavour="resume")
add("resume/mgda, gramian every 3", "uneven", "mgda", {**SGD, **CUT, "gramian_every": 3}, flavour="resume", stop=2)
method = {"name": "mrn", "architecture": {"name": "shared_bottom", "top": 4}, "every": 3}
add("resume/mrn", "many", method, {**SGD, **CUT}, flavour="resume")
training = {**ADAM, **CUT, "schedule": "cosine", "patience": 2, "epochs": 6, "lr": 0.1}
add("resume/cosine, patience", "uneven", "uncertainty", training, flavour="resume", stop=2)
training = {**IMAGES, **CUT, "epochs": 3, "augment": "flip"}
for name in ("equal", "maxroam", "rotograd"):
    add(f"resume/{name}, images", "images", name, training, encoder=RESNET, flavour="resume", stop=2)

# -- from one domain to another -------------------------------------------------------------------------------------

BOTTLENECK = {"name": "bottleneck", "width": 4, "dropout": 0.2}
MOVED = {**SGD, "epochs": 2, "batch_size": 10, "lr": 2e-3}
for name in ("population_correlation", "mmd", "coral", "cmd", "kl", "jan", "proxy_a", "dann", "cdan"):
    more = {"hidden": 3, "ramp": 4} if name in ("dann", "cdan") else {}
    add(f"domains/{name}", "domains", {"name": name, **more}, MOVED, encoder=BOTTLENECK)
add("domains/source alone", "domains", "equal", MOVED, encoder=BOTTLENECK)
method = {
    "architecture": {"name": "aaspc", "cells": 2, "lr": 0.1, "dropout": 0.2},
    "objective": "population_correlation",
}
add("domains/aaspc", "domains", method, {**MOVED, "epochs": 3}, encoder=BOTTLENECK)

# -- one network for a front ---------------------------------------------------------------------------------------

add("architecture, preferences/conditioned_hps", "uneven", {"name": "conditioned_hps", "grid": 3}, SGD, options=SHARED)
add("architecture, preferences/palora", "uneven", {"name": "palora", "grid": 3, "rank": 2}, SGD)
add(
    "architecture, preferences/palora epo", "uneven",
    {"architecture": {"name": "palora", "grid": 3}, "balancer": "epo"}, SGD, options=SHARED,
)  # fmt: skip

# -- batched trials ------------------------------------------------------------------------------------------------

RATES = ({"training.lr": 3e-3}, {"training.lr": 3e-2, "training.weight_decay": 1e-2})
MMOE = {"name": "mmoe", "experts": 2, "top": 4}
BATCHED: dict[str, Options] = {
    **{name: {"method": name} for name in ("equal", "uncertainty", "mgda", "dwa", "stl", "famo", "pcgrad")},
    "getmtl, other eps": {"method": "getmtl", "trials": ({"balancer.eps": 0.3}, {"balancer.eps": 0.8})},
    "epo, other preferences": {
        "method": {"name": "epo"},
        "trials": ({"balancer.ray": "1 of 3"}, {"balancer.preference": [0.2, 0.2, 0.6], "seed": 1}),
    },
    "look_ahead, other lengths": {
        "method": {"name": "look_ahead", "of": "mgda"},
        "trials": ({"balancer.rho": 0.05}, {"balancer.rho": 0.3, "seed": 1}),
    },
    "stch, other smoothing": {
        "method": "stch",
        "trials": ({"balancer.smoothing": 0.1}, {"balancer.smoothing": 0.5, "training.lr": 0.03}),
    },
    "other seeds": {"method": "rlw", "trials": ({"seed": 3}, {"seed": 4}, {"seed": 3, "training.lr": 0.03})},
    "other dropout": {
        "method": "uncertainty",
        "encoder": DEEP,
        "trials": ({"model.dropout": 0.1}, {"model.dropout": 0.4, "model.encoder.dropout": 0.1}),
    },
    "other seeds and dropout": {
        "method": "mgda",
        "trials": ({"seed": 1, "model.dropout": 0.3}, {"seed": 2, "model.dropout": 0.1}),
    },
    "other clip": {
        "method": "equal",
        "training": {"clip": 1.0},
        "trials": ({"training.clip": 0.05}, {"training.clip": 0.1}),
    },
    "other clip, stl": {
        "method": "stl",
        "training": {"clip": 1.0},
        "trials": ({"training.clip": 0.05}, {"training.clip": 0.1}),
    },
    "patience": {
        "method": "equal",
        "training": {"patience": 1, "epochs": 10, "selection": "metric"},
        "trials": ({"training.lr": 1e-3}, {"training.lr": 0.5}, {"training.lr": 0.1}),
    },
    "patience, stl": {
        "method": "stl",
        "training": {"patience": 1, "epochs": 10, "selection": "metric"},
        "trials": ({"training.lr": 1e-2}, {"training.lr": 0.5}),
    },
    "cagrad, selection by loss": {
        "method": "cagrad",
        "training": {"selection": "loss", "schedule": "cosine", "evaluate_every": 2},
    },
    "getmtl, sgd, exponential": {
        "method": "getmtl",
        "training": {"optimizer": "sgd", "momentum": 0.9, "schedule": "exponential", "decay_steps": 3},
        "trials": ({"training.momentum": 0.9}, {"training.momentum": 0.5}),
    },
    "adamw": {"method": "equal", "training": {"optimizer": "adamw"}},
    "steps per epoch": {"method": "nash_mtl", "training": {"steps_per_epoch": 4}},
    "one trial": {"method": "mgda", "training": {"selection": "metric"}, "trials": ({},)},
    "mmoe": {"method": {"architecture": MMOE, "balancer": "mgda"}},
    "shared_bottom": {"method": {"architecture": {"name": "shared_bottom", "top": 4}}},
    "cross_stitch": {"method": {"architecture": {"name": "cross_stitch", "top": 4}}},
}
for name, settings in BATCHED.items():
    more = {"trials": settings.get("trials", RATES), "encoder": settings.get("encoder", MLP)}
    training = {**ADAM, "batch_size": 6, "selection": "last", **settings.get("training", {})}
    dropout = 0.1 if "dropout" in name else 0.0
    add(
        f"batched, side by side/{name}",
        "many",
        settings["method"],
        training,
        dropout=dropout,
        flavour="batched",
        **more,
    )
for encoder, name in ((EMBEDDING_MLP, "mgda"), (DEEPFM, "equal"), (DCN_V2, "pcgrad")):
    quiet = {**encoder, **({"dropout": 0.0} if "dropout" in encoder else {})}
    more = {"trials": RATES, "encoder": quiet, "flavour": "batched"}
    add(f"batched, categories/{encoder['name']} {name}", "shop", name, {**ADAM, "selection": "last"}, **more)
for encoder, name, options in ((MPNN, "mgda", {}), (SCHNET, "equal", POSITIONS)):
    more = {"trials": RATES, "encoder": encoder, "options": options, "flavour": "batched"}
    add(f"batched, graphs/{encoder['name']} {name}", "molecules", name, {**ADAM, "selection": "last"}, **more)
trials = ({"training.lr": 0.1}, {"training.lr": 1e200}, {"training.lr": 0.2})
add("batched, side by side/diverging", "many", "mgda", PLAIN_SGD, flavour="batched", trials=trials)
for name in ("tomato_ex", "tomato_el"):
    more = {"trials": ({"objective.strength": 0.01}, {"objective.strength": 0.1, "training.lr": 0.05}), "dropout": 0.2}
    method = {"name": name, "architecture": TOMATO}
    add(f"batched, side by side/{name}", "many", method, PLAIN_SGD, options={"soft": True}, flavour="batched", **more)
    add(f"batched, one after another/{name}", "uneven", method, PLAIN_SGD, flavour="batched", **more)
# One long task and three short ones: too much padding for one pass.
for name in ("equal", "mgda", "stl"):
    more = {"options": {"sizes": [300, 6, 8, 7], "features": 40}, "encoder": {"name": "mlp", "hidden": [240]}}
    training = {**PLAIN_SGD, "batch_size": 300, "selection": "last"}
    add(f"batched, in groups/{name}", "many", name, training, dropout=0.2, flavour="batched", trials=RATES, **more)
for name in ("stl", "uncertainty", "mgda", "cagrad"):
    more = {"trials": RATES, "dropout": 0.2}
    add(f"batched, one after another/{name}", "uneven", name, ADAM, flavour="batched", **more)
    add(f"batched, shared inputs/{name}", "uneven", name, ADAM, options=SHARED, flavour="batched", **more)
for name in ("uncertainty", "mgda"):
    more = {"trials": RATES, "flavour": "batched"}
    add(f"batched, one after another/steps without labels, {name}", "uneven", name, SPARSE, **more)
    add(f"batched, shared inputs/steps without labels, {name}", "uneven", name, SPARSE, options=SHARED, **more)
more = {"trials": ({"seed": 1}, {"seed": 2}), "dropout": 0.2}
add("batched, shared inputs/other seeds", "uneven", "getmtl", SPARSE, options=SHARED, flavour="batched", **more)
add(
    "batched, one after another/one task",
    "many",
    "equal",
    ADAM,
    options={"sizes": [21]},
    flavour="batched",
    trials=RATES,
)

# -- a share of the training samples -------------------------------------------------------------------------------

for name in ("equal", "mgda", "meta_weighting", "svd_reweighting"):
    add(f"share/{name}", "uneven", name, PLAIN_SGD, share=0.3)
add("share/shared inputs", "uneven", "getmtl", {**ADAM, "selection": "last"}, options=SHARED, share=0.3, dropout=0.3)
add("share/two workers", "uneven", "mgda", PLAIN_SGD, share=0.3, flavour="two workers")
add("share/batched", "many", "mgda", PLAIN_SGD, share=0.3, flavour="batched", trials=RATES)
