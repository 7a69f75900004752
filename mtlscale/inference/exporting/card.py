"""The model card of an exported model: the README.md of its folder."""

from __future__ import annotations

from mtlscale.config import TaskSuite
from mtlscale.data import Manifest
from mtlscale.inference.description import Description
from mtlscale.inference.predictions import scaling_of
from mtlscale.metrics import in_units
from mtlscale.records import Metrics

# Packages that `load_model` and `predict` import; mtlscale itself is installed without its dependencies.
NEEDED = ("torch", "numpy", "scipy", "pyarrow", "pydantic", "pyyaml", "safetensors", "psutil")
OF_COMMANDS = ("typer", "rich")
_OF_KIND = {"image": ("pillow",), "tokens": (), "vector": ()}


def needed(description: Description) -> list[str]:
    """Return the packages that this model needs."""
    packages = [*NEEDED, *_OF_KIND[description.input.kind], *OF_COMMANDS]
    if "resnet" in description.spec["encoder"]["name"]:
        packages.append("torchvision")
    return packages + (["transformers"] if description.input.tokenizer else [])


def card(description: Description, manifest: Manifest) -> str:
    """Return the text of README.md."""
    run, suite, inputs = description.run, description.suite, description.input
    epochs = run.chosen_epoch if run.chosen_epoch is not None else "of each task its own"

    lines = [
        f"# {run.method} on {run.dataset}",
        "",
        f"A multi-task network trained by mtlscale {description.mtlscale}: {len(suite.tasks)} "
        f"task{'s' * (len(suite.tasks) > 1)} of {suite.name}.",
        "",
        "| | |",
        "|---|---|",
        f"| experiment | {run.experiment} |",
        f"| method | {run.method} |",
        f"| encoder | {description.spec['encoder']['name']} |",
        f"| seed | {run.seed} |",
        f"| run | `{run.run_id}` |",
        f"| epoch, chosen on validation | {epochs} |",
        f"| data | {suite.name} ({manifest.source.description}) |",
        f"| data's fingerprint | `{run.fingerprint}` |",
        f"| trained | {run.finished[:10]}, torch {run.versions.get('torch', '?')}, {run.hardware} |",
        "| licence of the weights | *to be filled in* |",
        "| licence of the data | *to be filled in* |",
        "| intended use | *to be filled in* |",
        "",
        "## Results",
        "",
        "Of the epoch that validation chose, measured by the run.",
        "",
        *_table(description.metrics, suite),
        "",
        "## Loading",
        "",
        "Neither Ray nor MLflow is needed:",
        "",
        "```sh",
        f"pip install {' '.join(needed(description))}",
        "pip install --no-deps mtlscale",
        "```",
        "",
        "```python",
        "import mtlscale",
        "",
        f'model = mtlscale.load_model("."{", trust_plugins=True" if description.plugins else ""})',
        f"found = model.predict({_example(description)})",
        f'found["{suite.tasks[0].name}"].labels',
        "```",
        "",
        f"The network reads `[N, {', '.join(map(str, inputs.shape))}]` of {inputs.dtype}. {_raw(description)}",
        "",
    ]
    if description.plugins:
        lines += [
            "The folder brings code of its own, which runs when it is trusted: "
            + ", ".join(f"`{plugin.file}` ({', '.join(plugin.components)})" for plugin in description.plugins)
            + ".",
            "",
        ]
    return "\n".join(lines)


def _table(metrics: dict[str, Metrics], suite: TaskSuite) -> list[str]:
    """Return the rows of the metrics; errors of standardised targets also in the units of the data."""
    rows = ["| task | metric | " + " | ".join(metrics) + " |", "|---|---|" + "---|" * len(metrics)]
    first = next(iter(metrics.values()), {})
    for task, values in first.items():
        for metric in values:
            _, deviation = scaling_of(suite, task)
            scales = {metric: 1.0}
            if in_units(metric) and deviation != 1.0:
                scales[f"{metric}, in units of the data"] = deviation
            for name, scale in scales.items():
                figures = (
                    f"{split_metrics[task][metric] * scale:.6g}" if metric in split_metrics.get(task, {}) else ""
                    for split_metrics in metrics.values()
                )
                rows.append(f"| {task} | {name} | " + " | ".join(figures) + " |")
    return rows


def _example(description: Description) -> str:
    kind, suite = description.input.kind, description.suite
    inputs = {"tokens": '["a text"]', "image": '["picture.jpg"]', "vector": "table"}[kind]
    one_of_many = suite.inputs == "per_task" and len(suite.tasks) > 1
    return f'{inputs}, task="{suite.tasks[0].name}"' if one_of_many else inputs


def _raw(description: Description) -> str:
    model_input = description.input
    if model_input.kind == "image":
        return "Pictures of any size are decoded and scaled to it."
    if model_input.kind == "tokens":
        takes_texts = model_input.tokenizer or model_input.words is not None
        return (
            "Texts become token ids as the data's did." if takes_texts else "Texts have to be token ids of the data's."
        )

    if not model_input.features:
        return "Tables have the features of the data, in their order, as the prepared data have them."
    remarks = ", and are standardised as the data's were" if model_input.mean else ""
    if categories := [entry["name"] for entry in model_input.columns if entry["kind"] in ("category", "hash")]:
        remarks += f"; {', '.join(f'`{name}`' for name in categories[:20])} hold categories"
    return f"Tables have the columns {', '.join(f'`{name}`' for name in model_input.features[:20])}{remarks}."
