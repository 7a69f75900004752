"""Experiment files: short forms, overrides, run ids, and one line for every mistake."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from mtlscale.config import Experiment, Run, UserError, load_experiment, shipped
from mtlscale.config.registry import components
from mtlscale.config.run.run_parts import settings

Small = Callable[..., Experiment]

loaded = functools.cache(load_experiment)  # of shipped experiments, which no test changes


def ids(experiment: Experiment, fingerprint: str = "f") -> list[str]:
    return [run.run_id for run in experiment.runs({"uneven": fingerprint})]


def test_trials_may_train_for_less_and_see_validation_alone(experiment_file: Callable[..., Path]) -> None:
    space = "{budget: 2, space: {}, methods: {equal: {training.lr: [0.01, 0.1]}, stl: {}}, training: {epochs: 1}}"
    evaluated = "[{name: uneven, evaluation: {flops: true}}]"
    given = {"datasets": evaluated, "methods": "[stl, equal]", "training": "{epochs: 3}"}
    experiment = load_experiment(experiment_file(search=space, **given))
    fingerprints = dict.fromkeys(experiment.data(), "f")
    [base] = experiment.bases(fingerprints)  # of stl nothing is searched
    assert (base.method, base.training.epochs, base.trial) == ("equal", 1, {})
    assert base.evaluation is not None and base.evaluation.splits == ("val",)
    winner = next(
        run for run in experiment.runs(fingerprints, {("uneven", "equal"): {"training.lr": 0.1}}) if run.trial
    )
    assert winner.training.epochs == 3 and winner.training.lr == 0.1
    assert winner.evaluation is not None and winner.evaluation.splits == ("val", "test")
    twice = "{budget: 2, space: {training.epochs: [1, 2]}, training: {epochs: 1}}"
    with pytest.raises(UserError, match=r"search.training.epochs is searched, too; drop it"):
        load_experiment(experiment_file(search=twice, **given))
    with pytest.raises(UserError, match="epoch"):
        load_experiment(experiment_file(search="{budget: 2, training: {epoch: 1}}", **given))


def test_every_shipped_experiment_loads_and_says_what_it_is() -> None:
    assert "quickstart" in shipped()
    for name, path in shipped().items():
        experiment = loaded(name)
        assert experiment.name == path.stem
        assert experiment.description


def test_a_method_is_named_by_the_one_part_that_is_not_the_default(small: Small) -> None:
    methods = (
        "[stl, mgda, {name: getmtl, eps: 0.5, label: half}, {architecture: stl, balancer: {name: cagrad, c: 0.2}}]"
    )
    stl, mgda, half, both = small(methods=methods).methods
    assert (stl.architecture.name, stl.balancer.name) == ("stl", "equal")
    assert (mgda.architecture.name, mgda.balancer.name) == ("hps", "mgda")
    assert half.label == "half" and half.balancer.options == {"eps": 0.5}
    assert both.label == "stl+cagrad" and both.balancer.options == {"c": 0.2}


def test_overrides_reach_into_mappings_and_lists(experiment_file: Callable[..., Path]) -> None:
    experiment = load_experiment(
        experiment_file(), ("training.epochs=7", "training.lr=1e-4", "seeds=[3, 4]", "methods.2={name: cagrad, c: 0.1}")
    )
    assert experiment.training.epochs == 7 and experiment.training.lr == 1e-4
    assert experiment.seeds == (3, 4) and experiment.methods[2].balancer.options == {"c": 0.1}


def test_numbers_without_a_point_in_the_mantissa_are_numbers(small: Small) -> None:
    experiment = small(methods="[{name: getmtl, eps: 25e-3}]")
    assert experiment.methods[0].balancer.options == {"eps": 0.025}


def test_a_run_id_follows_what_changes_results_and_nothing_else(small: Small) -> None:
    base = ids(small())
    assert len(set(base)) == len(base)
    same = [
        small(resources="{workers: 2, start_minutes: 1}"),
        small(tracking="{enabled: false}"),
        small(name="other"),
        small(datasets="[{name: uneven, noise: 0}]"),
        small(datasets="[{name: uneven, train: 1}]"),
        small(methods="[{name: stl, label: alone}, equal, {name: mgda, normalize: none}]"),
        small(training="{epochs: 3, batch_size: 16, lr: 0.01, dtype: float64, checkpoint_seconds: 1}"),
    ]
    for experiment in same:
        assert ids(experiment) == base
    different = [
        small(training="{epochs: 4, batch_size: 16, lr: 1e-2, dtype: float64}"),
        small(seeds="[1]"),
        small(model="{encoder: {name: mlp, hidden: [9]}}"),
        small(datasets="[{name: uneven, label: uneven, options: {shared: true}}]"),
        small(datasets="[{name: uneven, tasks: [a]}]"),
        small(datasets="[{name: uneven, noise: 0.2}]"),
        small(datasets="[{name: uneven, label: uneven, train: 0.2}]"),
    ]
    for experiment in different:
        assert not set(ids(experiment)) & set(base)
    assert not set(ids(small(), "g")) & set(base)


def test_every_setting_of_the_noise_is_part_of_the_run(small: Small) -> None:
    forms = ["0.2", "{share: 0.1}", "{share: 0.2, seed: 1}", "{share: 0.2, tasks: [a]}", "{share: 0.2, tasks: [b]}"]
    found = [ids(small(datasets=f"[{{name: uneven, noise: {form}}}]")) for form in forms]
    assert len({one for run_ids in found for one in run_ids}) == sum(map(len, found))
    run = next(small(datasets="[{name: uneven, tasks: [b, a], noise: 0.2}]").runs({"uneven": "f"}))
    assert run.tasks == ["b", "a"] and run.noise is not None and run.noise.share == 0.2
    assert found[0] == ids(small(datasets="[{name: uneven, noise: {share: 0.2, seed: 0}}]"))


def test_an_attack_may_be_its_radius_alone_or_the_usual_one(small: Small) -> None:
    def attack(form: str) -> object:
        return small(datasets=f"[{{name: uneven, evaluation: {{pgd: {form}}}}}]").datasets[0].evaluation.pgd

    assert attack("true") == attack("{}") == attack("2") and attack("4") == attack("{epsilon: 4}")
    assert attack("4").epsilon == 4 and attack("1").epsilon == 1 != attack("true").epsilon


def test_a_share_of_the_training_samples_names_the_data_set(small: Small) -> None:
    experiment = small(datasets="[uneven, {name: uneven, train: 0.1}, {name: uneven, train: 0.125, label: few}]")
    assert [dataset.label for dataset in experiment.datasets] == ["uneven", "uneven 10 %", "few"]
    runs = list(experiment.runs(dict.fromkeys(experiment.data(), "f")))
    assert len({run.run_id for run in runs}) == len(runs)
    assert {run.dataset: run.share for run in runs} == {"uneven": 1.0, "uneven 10 %": 0.1, "few": 0.125}


def test_a_share_of_one_task_is_named_and_part_of_the_run(small: Small) -> None:
    experiment = small(datasets="[uneven, {name: uneven, train: {a: 0.1, b: 1}}, {name: uneven, train: 0.1}]")
    assert [dataset.label for dataset in experiment.datasets] == ["uneven", "uneven a 10 %", "uneven 10 %"]
    runs = list(experiment.runs(dict.fromkeys(experiment.data(), "f")))
    assert len({run.run_id for run in runs}) == len(runs)
    assert {run.dataset: run.share for run in runs} == {"uneven": 1.0, "uneven a 10 %": {"a": 0.1}, "uneven 10 %": 0.1}
    same = small(datasets="[{name: uneven, label: uneven, train: {a: 1}}]")
    assert set(ids(same)) == set(ids(small()))
    with pytest.raises(UserError, match="train"):
        small(datasets="[{name: uneven, train: {a: 1.5}}]")


@pytest.mark.parametrize(
    ("share", "problem"),
    [
        ("0", "datasets.0.train: should be greater than 0"),
        ("-0.1", "datasets.0.train: should be greater than 0"),
        ("1.5", "datasets.0.train: should be less than or equal to 1"),
        ("ten", "datasets.0.train: should be a number, not the text 'ten'"),
        ("true", "datasets.0.train: should be a number, not true"),
        (".nan", "datasets.0.train: "),
        ("[0.1]", "datasets.0.train: "),
        ("{a: 0.5, b: 1.5}", "datasets.0.train.b: should be less than or equal to 1"),
        ("{a: true}", "datasets.0.train.a: should be a number"),
    ],
)
def test_what_is_no_share_is_said_in_one_line(share: str, problem: str, small: Small) -> None:
    with pytest.raises(UserError, match=problem) as found:
        small(datasets=f"[{{name: uneven, train: {share}}}]")
    assert "\n" not in str(found.value)


def test_a_default_that_changes_is_another_run(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run id covers every setting with its value, whether the file names it or not."""
    from mtlscale.encoders.table.mlp import MLP

    base = {run.method: run.run_id for run in small().runs({"uneven": "f"})}
    named = small(model="{encoder: {name: mlp, hidden: [8], activation: relu}, dropout: 0.0}")
    assert {run.method: run.run_id for run in named.runs({"uneven": "f"})} == base
    for run in small().runs({"uneven": "f"}):
        for part, key, value in (
            ("training", "gramian_every", 2),
            ("encoder", "activation", "tanh"),
            ("dataset", "shared", True),
            ("balancer", "results_version", 99),
        ):
            changed = json.loads(json.dumps(run.spec))
            changed[part][key] = value
            assert run.model_copy(update={"spec": changed}).run_id != run.run_id
    field = next(field for field in dataclasses.fields(MLP) if field.name == "activation")
    monkeypatch.setattr(field, "default", "tanh")
    monkeypatch.setattr(MLP.__init__, "__kwdefaults__", {**MLP.__init__.__kwdefaults__, "activation": "tanh"})
    assert not set(base.values()) & {run.run_id for run in small().runs({"uneven": "f"})}


def test_methods_may_have_training_of_their_own(small: Small) -> None:
    experiment = small(methods="[equal, {name: mgda, training: {lr: 0.5}}]")
    assert [run.training.lr for run in experiment.runs({"uneven": "f"})] == [0.01, 0.5]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ({"methods": "[mgdaa]"}, r":4: .*unknown method 'mgdaa': did you mean mgda"),
        ({"methods": "[{name: getmtl, epss: 1}]"}, "method getmtl: unknown option 'epss'; did you mean eps"),
        ({"methods": "[{name: getmtl, eps: 0}]"}, r"getmtl: eps = 0.0 is outside \(0, 1\]"),
        ({"methods": "[{name: cagrad, c: 1}]"}, r"cagrad: c = 1.0 is outside \[0, 1\)"),
        ({"methods": "[equal, equal]"}, "method 'equal' appears twice"),
        ({"trainin": "{}"}, r":8: unknown key trainin: did you mean training"),
        ({"training": "{epoch: 3}"}, r":7: unknown key training.epoch: did you mean epochs"),
        ({"training": "{epochs: many}"}, r":7: training.epochs: .*integer"),
        ({"training": "{epochs: 0}"}, r":7: training.epochs: .*greater than or equal to 1"),
        ({"datasets": "[unevn]"}, "unknown dataset 'unevn': did you mean uneven"),
        ({"model": "{encoder: {name: mlpp}}"}, "unknown encoder 'mlpp': did you mean mlp"),
        ({"plugins": "[nowhere.py]"}, "plugin .*nowhere.py does not exist"),
        ({"seeds": "[1, 1]"}, "a seed appears twice"),
        (
            {"methods": "[{name: mgda, training: {epoch: 2}}]"},
            "training of mgda: unknown key epoch: did you mean epochs",
        ),
    ],
)
def test_a_mistake_gets_one_line_that_names_it_and_its_mend(lines: dict[str, str], expected: str, small: Small) -> None:
    with pytest.raises(UserError, match=expected) as caught:
        small(**lines)
    assert "\n" not in str(caught.value)


def test_broken_yaml_is_located(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("name: x\nmethods: [a, b\ndatasets: [digits]\n")
    with pytest.raises(UserError, match=r"broken\.yaml:3: not valid YAML.*mend it here or just above"):
        load_experiment(path)


def test_a_misspelt_experiment_names_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean quickstart"):
        load_experiment("quikstart")


def test_an_override_without_a_value_says_how_to_write_one(experiment_file: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match="write KEY=VALUE"):
        load_experiment(experiment_file(), ("training.epochs",))


def test_a_misspelt_key_is_named_rather_than_what_it_left_missing(tmp_path: Path) -> None:
    path = tmp_path / "key.yaml"
    path.write_text("name: a\ndatasets: [digits]\nmethod: [stl]\n")
    with pytest.raises(UserError, match=r"key\.yaml:3: unknown key method: did you mean methods"):
        load_experiment(path)


@pytest.mark.parametrize("name", sorted(shipped()))
def test_a_run_that_travels_is_made_of_the_same(name: str) -> None:
    """Parts stay at home and are built anew from the plain form; they are those the experiment has built."""
    experiment = loaded(name)
    fingerprints = dict.fromkeys(experiment.data(), "f")
    runs = experiment.runs(fingerprints) if experiment.search is None else experiment.bases(fingerprints)
    # Seeds of a method share its parts: one stands for them, but for quickstart's.
    for run in runs if name == "quickstart" else {(run.dataset, run.method): run for run in runs}.values():
        there = pickle.loads(pickle.dumps(run))  # noqa: S301 (our own)
        assert "parts" in vars(run) and "parts" not in vars(there)
        assert there == run and there.run_id == run.run_id and there.model_dump() == run.model_dump()
        assert there.parts == run.parts and there.parts is there.parts and there.parts.plain() == run.parts.plain()


def test_parts_are_built_once_for_all_seeds_and_follow_the_spec(small: Small) -> None:
    first, second = small(methods="[getmtl]", seeds="[0, 1]").runs({"uneven": "f"})
    assert first.parts is second.parts
    tuned = first.tuned({"training.lr": 0.5, "balancer.eps": 0.25, "model.dropout": 0.5})
    assert (tuned.training.lr, tuned.parts.balancer.eps, tuned.parts.dropout) == (0.5, 0.25, 0.5)
    assert tuned.parts.encoder is first.parts.encoder and first.parts.dropout == 0.0
    there = pickle.loads(pickle.dumps(tuned))  # noqa: S301 (our own)
    assert there.parts == tuned.parts
    spec = {**first.spec, "dropout": 0.75}
    assert first.model_copy(update={"spec": spec}).parts.dropout == 0.75


def test_run_ids_of_shipped_experiments_are_the_hash_of_the_whole_spec() -> None:
    """Of the whole spec as sorted JSON, written out here: in the package, runs share most of that text."""
    from mtlscale.config.run.run import RESULTS_VERSION, no_result

    def plainly(run: Run) -> str:
        training = run.spec["training"]
        spec = {
            **{key: run.spec[key] for key in ("dataset", "architecture", "balancer", "objective", "encoder")},
            **{key: run.spec[key] for key in ("dropout", "seed")},
            "training": {key: value for key, value in training.items() if key not in no_result(training)},
        }
        text = json.dumps([spec, run.fingerprint, RESULTS_VERSION], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    files = sorted((Path(__file__).parents[2] / "experiments").glob("*.yaml"))
    assert files
    for file in files:
        assert shipped()[file.stem].samefile(file)
        experiment = loaded(file.stem)
        fingerprints = {name: f"data of {name}" for name in experiment.data()}
        for run in experiment.runs(fingerprints):
            assert run.run_id == plainly(run), f"{file.stem}: {run.method}"
        changed = run.tuned({"training.lr": 0.123, "model.dropout": 0.3})
        assert changed.run_id == plainly(changed) != run.run_id
        assert pickle.loads(pickle.dumps(run)).run_id == run.run_id  # noqa: S301


def test_a_setting_that_came_later_is_no_part_of_a_run_at_its_default() -> None:
    """Runs and prepared sets from before it stay what they are."""
    plain, alike = (components.build("architectures", "conal", options) for options in ({}, {"heads": "alike"}))
    assert "heads" not in settings(plain) and "levels" in settings(plain)
    assert settings(alike)["heads"] == "alike"
    assert "split" not in components.build("datasets", "activations", {}).options()
    assert components.build("datasets", "activations", {"split": 3}).options()["split"] == 3
