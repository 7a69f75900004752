"""The names that other libraries and papers use for mtlscale's own names, as data for error messages."""

from __future__ import annotations

# Name in mtlscale -> names elsewhere, without their underscores and dashes. Error messages suggest the name in
# mtlscale; no name is silently replaced by another.
_ELSEWHERE = {
    # methods
    "stl": "singletask singletasklearning singletaskbaseline independent separatetraining",
    "equal": "ls ew linearscalarization linearscalarisation scalarization equalweighting equalweights equalweight "
    "uniform unitary average averaging mean sum",
    "hps": "hardsharing hardparametersharing hardparamsharing hard sharedbackbone",
    "uncertainty": "uw uncertaintyweighting uncertaintyweights uncertaintyweight homoscedastic kendall",
    "rlw": "randomlossweighting randomweighting rgw",
    "dwa": "dynamicweightaverage dynamicweightaveraging",
    "gls": "geometricloss geometriclossstrategy geometricmean",
    "pcgrad": "gradientsurgery projectingconflictinggradients",
    "cagrad": "conflictaverse conflictaversegradient",
    "gradvac": "gradientvaccine",
    "graddrop": "gradientdropout gradientsigndropout",
    "mgda": "moomtl mgdamtl multipleobjectivegradientdescent multiplegradientdescent minnorm",
    "nash_mtl": "nash nashbargaining",
    "imtl_g": "imtl impartial",
    "stch": "smoothtchebycheff smoothchebyshev",
    "tchebycheff": "chebyshev tchebyshev chebyshevscalarization",
    "static": "fixed manual constantweights staticweights fixedweights",
    "mmoe": "moe multigatemixtureofexperts mixtureofexperts",
    "ple": "progressivelayeredextraction",
    "cgc": "customizedgatecontrol",
    "nddr_cnn": "nddr",
    # encoders and data sets
    "mlp": "fc dense feedforward fullyconnected perceptron",
    "embedding_mlp": "embedding embeddings embeddinglookup widedeep wideanddeep widendeep",
    "deepfm": "fm nfm factorizationmachine factorisationmachine",
    "dcn_v2": "dcn dcnv2 crossnet crossnetwork deepcross deepcrossnetwork",
    "mpnn": "gnn gcn gin graph graphnet graphnetwork messagepassing nnconv",
    "schnet": "egnn dimenet painn",
    "movielens": "ml100k movielens100k",
    "census_income": "census censusincome kddcensus",
    "pretrained": "bert roberta distilbert huggingface transformers hf",
    "newsgroups": "20newsgroups newsgroups20",
    "table": "csv tabular tsv parquet dataframe pandas",
    "nyuv2": "nyu nyud nyudepth",
    # losses and metrics
    "accuracy": "acc top1",
    "auroc": "auc rocauc aucroc",
    "gauroc": "gauc groupedauc groupauc",
    "ece": "calibration calibrationerror expectedcalibrationerror",
    "aupr": "ap averageprecision prauc auprc map",
    "matthews": "mcc",
    "miou": "iou meaniou jaccard",
    "f1": "macrof1 f1macro f1score",
    "cross_entropy": "ce nll logloss crossentropyloss",
    "bce": "binarycrossentropy bcewithlogits logistic",
    "mse": "l2 meansquarederror squarederror",
    "mae": "l1 meanabsoluteerror",
    "l1": "mae meanabsoluteerror absoluteerror",
    # keys of the experiment file
    "lr": "learningrate stepsize alpha",
    "epochs": "nepochs numepochs maxepochs",
    "batch_size": "bs batch batchsizes minibatch trainbatchsize",
    "optimizer": "optim opt optimiser",
    "weight_decay": "wd l2 decay",
    "schedule": "scheduler lrschedule lrscheduler",
    "decay_rate": "lrdecay gamma",
    "clip": "gradclip gradientclip gradientclipping clipgrad clipnorm maxgradnorm gradientclipval gradclipnorm",
    "amp": "mixedprecision precision fp16 bf16 halfprecision",
    "patience": "earlystopping earlystop",
    "accumulate": "gradientaccumulation accumulategradbatches gradaccum accumulationsteps gradientaccumulationsteps",
    "evaluate_every": "evalevery valevery validateevery checkvaleverynepoch",
    "steps_per_epoch": "steps maxsteps iterations",
    "checkpoint_seconds": "checkpoint checkpointing saveevery",
    "gpus_per_worker": "device gpu gpus cuda numgpus ngpus usegpu accelerator",
    "cpus_per_worker": "cpu cpus numcpus ncpus cores",
    "workers": "numworkers nworkers njobs worldsize processes",
    "collectors": "numenvs envs rolloutworkers",
    "scale": "log logscale loguniform",
    "low": "min minimum lower from",
    "high": "max maximum upper to",
    "budget": "trials ntrials numtrials numsamples maxtrials",
    "algorithm": "sampler searchalg",
    "search": "tune tuning hpo hyperparametersearch optuna sweep",
    "seeds": "nseeds numseeds randomseeds randomstate randomseed",
    "datasets": "data",
    "methods": "algorithms baselines",
    "model": "network",
    "encoder": "backbone trunk",
    "tracking": "mlflow logging logger wandb",
    "uri": "trackinguri",
    "source": "path root datadir folder dir file",
    "options": "params parameters kwargs args config",
    "balancer": "weighting lossweighting aggregator losscombination",
    "architecture": "arch",
    "train": "trainshare trainfraction fraction subset",
    "noise": "labelnoise",
    "hidden": "layers hiddensizes hiddendim hiddensize hiddenlayers units width",
    "published": "reference results",
    "weights": "pretrained",  # its name in 0.1.0
}


def plain(name: str) -> str:
    """Return the name in lower case, with only its letters and digits."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


_HERE: dict[str, list[str]] = {}
for _name, _others in _ELSEWHERE.items():
    for _other in _others.split():
        _HERE.setdefault(_other, []).append(_name)


def names_here(name: str) -> list[str]:
    """Return the names in mtlscale that a name of other libraries may stand for."""
    return _HERE.get(plain(name), [])
