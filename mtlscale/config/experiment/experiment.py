"""Experiments, and their expansion into runs.

An experiment is *datasets x methods x seeds*. A method is named by its architecture (`stl`, `hps`, …), its balancer
(`mgda`, `getmtl`, …) or its objective (`aamtrl`, …); the parts that are not named are hard parameter sharing and equal
weighting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from mtlscale.config.errors import UserError
from mtlscale.config.experiment.ray_methods import on_rays
from mtlscale.config.registry.components import component
from mtlscale.config.registry.nearest import nearest
from mtlscale.config.run.run import Run, RunIdTemplate
from mtlscale.config.run.run_parts import Parts, as_json
from mtlscale.config.search.trials import check, check_space, space_of
from mtlscale.config.settings import metric_selection
from mtlscale.config.settings.models import (
    DatasetSpec,
    MethodSpec,
    ModelSpec,
    ResourceSpec,
    TrackingSpec,
    TrainingSpec,
)
from mtlscale.config.settings.search_space import Knobs, SearchSpec
from mtlscale.config.validation import Label, Model, override

Floor = Literal["constant", "linear", "forest", "boosting", "frequent_tag", "random_actions"]
# `constant` is computed from the training labels alone, `linear` is linear in the inputs; forest and boosting are for
# tables. A pipeline names those that are not for its data.
_OF_TABLES: tuple[Floor, ...] = ("forest", "boosting")
FLOORS: tuple[Floor, ...] = ("constant", "linear", *_OF_TABLES)


class Experiment(Model):
    """The settings of an experiment file."""

    # name of the results' folder and in MLflow; default: the file's
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"), Label]
    description: str = ""  # the sentence above the leaderboard
    datasets: tuple[DatasetSpec, ...] = Field(min_length=1)  # a name, or a mapping with what follows below
    floors: tuple[Floor, ...] = FLOORS  # rows that no method should lie below
    methods: tuple[MethodSpec, ...] = Field(min_length=1)  # rows of the leaderboard; floors are added by themselves
    seeds: tuple[int, ...] = Field((0,), min_length=1)  # random seeds; every method runs with each of them
    model: ModelSpec = ModelSpec()  # the network below what methods share
    training: TrainingSpec = TrainingSpec()  # settings of training; those of a method or data set come first
    resources: ResourceSpec = ResourceSpec()  # workers, CPUs and GPUs of a run, and how long to wait for them
    tracking: TrackingSpec = TrackingSpec()  # MLflow
    search: SearchSpec | None = None  # tune every method on validation, then train the winners on `seeds`
    plugins: tuple[Path, ...] = ()  # files with components of your own, relative to this one
    baseline: str = "stl"  # the method whose scores Δ is relative to, by label or name
    reference: str = "equal"  # the method that others are tested against, by label or name
    delta: tuple[str, ...] | None = Field(None, min_length=1)  # metrics in Δ and η; default: what the pipeline says
    published: Path | None = None  # a file of published numbers to show beside ours

    @field_validator("methods")
    @classmethod
    def _with_floors(cls, methods: tuple[MethodSpec, ...], info: ValidationInfo) -> tuple[MethodSpec, ...]:
        """Expand methods with several rays, and add the floors that the file does not name behind its own methods."""
        try:
            methods = tuple(method for entry in methods for method in on_rays(entry))
        except UserError as error:
            raise ValueError(str(error)) from None
        labels = {method.label for method in methods}
        added = (floor for floor in info.data.get("floors", ()) if floor not in labels)
        return (*methods, *(MethodSpec.added(floor) for floor in added))

    @model_validator(mode="after")
    def _distinct(self) -> Experiment:
        for kind, labels in (
            ("method", [method.label for method in self.methods]),
            ("dataset", [dataset.label for dataset in self.datasets]),
        ):
            duplicates = sorted({label for label in labels if labels.count(label) > 1})
            if duplicates:
                raise ValueError(f"{kind} {duplicates[0]!r} appears twice; give one of them another `label`")

        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("a seed appears twice")
        return self

    def validate_components(self) -> None:
        """Build every component once, so that a bad name or option is reported before anything starts."""
        metric_selection.check_names(self.delta or (), "delta", of_task=True)
        self._check_compared()
        rows = list(dict.fromkeys(method.row for method in self.methods))

        for dataset in self.datasets:
            dataset.build()
            for row in dataset.without:
                if row not in rows:
                    raise UserError(f"without of {dataset.label}: unknown method {row!r}; {nearest(row, rows)}")
            metric_selection.check_names(metric_selection.names_of(dataset.metrics), f"metrics of {dataset.label}")
            metric_selection.check_names(dataset.delta or (), f"delta of {dataset.label}", of_task=True)
            for method in self.methods:
                self._parts(dataset, method)

        if self.search is not None:
            labels = dict.fromkeys(label for method in self.methods for label in (method.row, method.label))
            check(self.search, list(labels), self.seeds)
            for dataset in self.datasets:
                dataset.check_search(self.search.seed, self.seeds)
            for run in self.bases(dict.fromkeys(self.data(), "")):
                check_space(self.search, run)

    def _check_compared(self) -> None:
        """Raise `UserError` with the nearest names if `baseline` or `reference` is none of the methods."""
        labels = list(dict.fromkeys(method.row for method in self.methods))
        known_names = {name.casefold() for method in self.methods for name in (method.label, method.row, method.name)}
        for key in ("baseline", "reference"):
            name = getattr(self, key)
            if key in self.model_fields_set and name.casefold() not in known_names:  # the default need not be a row
                raise UserError(f"{key}: {self.name} has no method {name!r}; {nearest(name, labels)}")

    def _parts(self, dataset: DatasetSpec, method: MethodSpec) -> Parts:
        """Build the parts of the runs of a method on a data set."""
        where = f"method {method.label}"
        model = override(self.model, {**dataset.model, **method.model}, f"model of {method.label}")
        training = override(self.training, {**dataset.training, **method.training}, f"training of {method.label}")

        architecture = method.architecture.build("architectures", where)

        objective = None
        if method.objective is not None:
            objective = method.objective.build("objectives", where)
            objective.require(architecture, training)

        balancer = method.balancer.build("balancers", where)
        encoder = model.encoder.build("encoders", "model.encoder")
        balancer.rehearse()
        return Parts(architecture, balancer, objective, encoder, model.dropout, training)

    def methods_of(self, dataset: DatasetSpec) -> tuple[MethodSpec, ...]:
        """Return the rows of a data set: all methods, less those of `without` and floors that it cannot have."""
        pipeline = component("datasets", dataset.name)
        floors = () if "floors" in self.model_fields_set else getattr(pipeline, "without_floors", ())
        return tuple(
            method
            for method in self.methods
            if method.row not in dataset.without and not (method.is_added and method.architecture.name in floors)
        )

    def without_rows(self) -> dict[tuple[str, ...], list[str]]:
        """Return the rows that data sets go without by the file: labels of the rows -> labels of the data sets."""
        datasets_by_rows: dict[tuple[str, ...], list[str]] = {}
        for dataset in self.datasets:
            rows = dict.fromkeys(method.row for method in self.methods if method.row in dataset.without)
            if rows:
                datasets_by_rows.setdefault(tuple(rows), []).append(dataset.label)
        return datasets_by_rows

    def left_out(self) -> dict[tuple[str, ...], list[str]]:
        """Return the default floors that data sets go without: labels of the floors -> labels of the data sets.

        That data other than tables have no trees is not worth a word.
        """
        datasets_by_floors: dict[tuple[str, ...], list[str]] = {}
        for dataset in self.datasets:
            methods = (*self.methods_of(dataset), *(method for method in self.methods if method.row in dataset.without))
            without = [method for method in self.methods if method not in methods]
            trees = [method for method in without if method.architecture.name in _OF_TABLES]
            if len(trees) == len(_OF_TABLES):
                without = [method for method in without if method not in trees]
            if floors := tuple(method.label for method in without):
                datasets_by_floors.setdefault(floors, []).append(dataset.label)
        return datasets_by_floors

    def runs(
        self, fingerprints: Mapping[str, str], chosen: Mapping[tuple[str, str], Knobs] | None = None
    ) -> Iterator[Run]:
        """Yield one run per dataset x method x seed.

        Args:
            fingerprints: Name of the prepared data -> its fingerprint.
            chosen: (dataset, method) -> the settings that a search has chosen.
        """
        searched = self._searched_ray()
        for run in self._runs(fingerprints, self.seeds):
            yield run.tuned((chosen or {}).get((run.dataset, searched.get(run.method, run.method)), {}))

    def bases(self, fingerprints: Mapping[str, str]) -> list[Run]:
        """List the run that each method's trials are made from: with the search's seed, before any setting is chosen.

        Methods that are computed from the data have none, nor have methods with an empty search space. Of a method's
        rays the middle one is tried, for all.
        """
        assert self.search is not None
        runs = self._runs(fingerprints, (self.search.seed,))
        middle = self._searched_ray()
        searched = (
            run
            for run in runs
            if middle.get(run.method, run.method) == run.method
            and not run.parts.architecture.fitted
            and space_of(self.search, run)
        )
        return [self._as_tried(run) for run in searched]

    def _searched_ray(self) -> dict[str, str]:
        """Return the label of each ray -> that of the middle one of its method, whose search counts for all."""
        labels_by_row: dict[str, list[str]] = {}
        for method in self.methods:
            if method.row != method.label:
                labels_by_row.setdefault(method.row, []).append(method.label)
        return {label: labels[(len(labels) - 1) // 2] for labels in labels_by_row.values() for label in labels}

    def _as_tried(self, run: Run) -> Run:
        """Return a run with the settings of trials, evaluated on validation alone: a search may see no more."""
        assert self.search is not None
        run = run.tuned({f"training.{key}": value for key, value in self.search.training.items()})

        if run.evaluation is not None:
            evaluation = run.evaluation.model_copy(update={"splits": ("val",)}).model_dump(mode="json")
            parts = run.parts
            dataset = {**run.spec["dataset"], "evaluation": evaluation}
            run = run.model_copy(update={"spec": {**run.spec, "dataset": dataset}})
            run.__dict__["parts"] = parts

        return run.model_copy(update={"trial": {}})

    def _runs(self, fingerprints: Mapping[str, str], seeds: tuple[int, ...]) -> Iterator[Run]:
        for dataset in self.datasets:
            # Computed once, since runs share it: large experiments have many runs.
            data = {seed: (dataset.prepared(seed), data_settings(dataset, seed)) for seed in seeds}

            for method in self.methods_of(dataset):
                parts = self._parts(dataset, method)
                plain = parts.plain()
                frame = RunIdTemplate.of(plain)

                for seed, (prepared, pipeline) in data.items():
                    yield Run.of_parts(
                        parts,
                        frame,
                        experiment=self.name,
                        dataset=dataset.label,
                        data=prepared,
                        method=method.label,
                        seed=seed,
                        fingerprint=fingerprints[prepared],
                        spec={"dataset": pipeline, **plain, "seed": seed},
                    )

    def delta_of(self) -> dict[str, tuple[str, ...]]:
        """Return data set -> names of the metrics in Δ and η.

        The key "" holds the names for data sets without their own; the result is empty if only pipelines declare them.
        """
        names_by_label = {"": self.delta, **{dataset.label: dataset.delta for dataset in self.datasets}}
        return {label: names for label, names in names_by_label.items() if names is not None}

    def data(self) -> dict[str, tuple[DatasetSpec, int]]:
        """Return name of the prepared data -> the data set and a seed that reads it, for all runs and trials."""
        seeds = self.seeds if self.search is None else (*self.seeds, self.search.seed)
        return {dataset.prepared(seed): (dataset, seed) for dataset in self.datasets for seed in seeds}


def data_settings(dataset: DatasetSpec, seed: int) -> dict[str, Any]:
    """Return the data set's part of a run's spec."""
    options = dataset.build(seed)
    knobs = options.knob_values()
    names = metric_selection.names_of(dataset.metrics)

    settings: dict[str, Any] = {}
    if names:
        settings["task_metrics"] = [dataset.metrics, metric_selection.plugin_hashes(names)]
    if dataset.tasks is not None:
        settings["only_tasks"] = dataset.tasks
    if dataset.noise is not None and dataset.noise.share > 0:
        settings["label_noise"] = dataset.noise.model_dump()
    if dataset.evaluation is not None:
        settings["evaluation"] = dataset.evaluation.model_dump()
    if shares := dataset.shares:
        settings["train_share"] = shares

    return as_json({"name": dataset.name, **knobs, **settings})
