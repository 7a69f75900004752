"""Small numerical studies of what the works prove or draw, in a minute each on one core.

    python studies/theory.py CASE --home HOME     # --help names the cases
    python studies/theory.py CASE --picture FILE  # draws the means with their intervals, too
    python studies/results.py --home HOME         # writes results/tables from the pages that are left in HOME

Each case draws its data anew for every seed, and leaves a table with a row for each thing measured: its mean over
seeds, half the 95 % interval, and the value of each seed. One row decides: positive is what the work says. Linear tasks
y_i = X_i θ_i + noise share a matrix B [d, r] and have heads A_i [r]; the cases about them take the least sum of squared
errors itself, not what an optimiser reaches.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import claims
import figure3
import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from mtlscale.config import UserError
from mtlscale.objectives.relatedness import relatedness_matrix
from mtlscale.records import Home, write_atomically
from mtlscale.report.charts.chart import Axis, Chart, Dots, Level, Panel
from mtlscale.report.charts.vega import save
from mtlscale.solvers import min_norm_weights, solve_getmtl, svd_task_weights
from pipelines._steps.features import Vectors
from pipelines.generated.transfer import SOURCE, TARGET, Transfer

Array = NDArray[np.float64]
Samples = tuple[Array, Array]  # inputs [N, d], labels [N]
Values = dict[str, float]  # what is measured -> its value


@dataclass(frozen=True)
class Case:
    """A study: what it asks, what it measures of one seed, and the row that decides."""

    question: str
    measure: Callable[[int], Values]
    decides: str
    seeds: int = 20

    def rows(self, seeds: Sequence[int]) -> dict[str, list[float]]:
        """Return the values by seed of everything that is measured."""
        measured = [self.measure(seed) for seed in seeds]
        return {name: [values[name] for values in measured] for name in measured[0]}


def relatedness(seed: int) -> Values:
    """Measure R of three Gaussians in the plane, two at a distance from each other, the third 4 from the first."""
    noise = torch.randn(3, 500, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    task = torch.arange(3).repeat_interleave(500)
    values: Values = {}
    for distance in (0.0, 1.0, 2.0, 4.0):
        centres = torch.tensor([[0.0, 0.0], [distance, 0.0], [0.0, 4.0]], dtype=torch.float64)
        inputs = (noise + centres[:, None]).reshape(-1, 2)
        related = relatedness_matrix(_discriminator(inputs, task), task)
        posterior = relatedness_matrix(torch.softmax(-(inputs[:, None] - centres).square().sum(-1) / 2, 1), task)
        values[f"R of the first two, distance {distance:g}"] = float(related[0, 1])
        values[f"R of the first and the third, distance {distance:g}"] = float(related[0, 2])
        values[f"R of the first two by the true densities, distance {distance:g}"] = float(posterior[0, 1])
    values["R at distance 1 − R at distance 4"] = values[_R.format(1)] - values[_R.format(4)]
    steps = [values[_R.format(distance)] for distance in (0, 1, 2, 4)]
    values["smallest fall of R from one distance to the next"] = -max(np.diff(steps))
    return values


_R = "R of the first two, distance {}"


def _discriminator(inputs: torch.Tensor, task: torch.Tensor) -> torch.Tensor:
    """Return the probabilities [N, T] of the linear discriminator that names the inputs' tasks best."""
    layer = torch.zeros(3, 3, dtype=torch.float64, requires_grad=True)
    padded = torch.cat([inputs, torch.ones_like(inputs[:, :1])], 1)
    optimizer = torch.optim.LBFGS([layer], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = cross_entropy(padded @ layer, task)
        loss.backward()
        return loss

    optimizer.step(closure)
    return torch.softmax(padded @ layer.detach(), 1)


def transfer(seed: int) -> Values:
    """Measure what a source gains for a target of 80 samples, d = 40, κ = 100 on four directions, noise 0.5, r = 1."""
    settings = [("same", 1000, cosine) for cosine in (1.0, 0.96, 0.8, 0.5, 0.0)]
    settings += [(covariance, 1000, 0.96) for covariance in ("disjoint", "rotated")]
    settings += [("same", size, 0.96) for size in (30, 100, 9000)]
    values: Values = {}
    for covariance, size, cosine in settings:
        options = {"covariance": covariance, "cosine": cosine, "features": 40, "rank": 4, "noise": 0.5, "split": seed}
        vectors = Transfer(samples=80, source_samples=size, **options).vectors()
        (target, test), (source, _) = (_parts(vectors[task]) for task in (TARGET, SOURCE))
        alone = _rmse(*test, np.linalg.lstsq(*target, rcond=None)[0])
        together = _rmse(*test, _one_direction([target, source])[0])
        values[_GAIN.format(covariance, size, cosine)] = 100.0 * (alone - together) / alone
    gain = {setting: values[_GAIN.format(*setting)] for setting in settings}
    values["the same model: gain with the same covariance − with a disjoint one"] = (
        gain["same", 1000, 0.96] - gain["disjoint", 1000, 0.96]
    )
    values["gain at cosine 1 − at cosine 0"] = gain["same", 1000, 1.0] - gain["same", 1000, 0.0]
    values["gain of 9,000 source samples − of 30"] = gain["same", 9000, 0.96] - gain["same", 30, 0.96]
    return values


_GAIN = "gain, {} covariance, {} source samples, cosine {:g}, %"


def _parts(vectors: Vectors) -> list[Samples]:
    """Return inputs and labels of a task's train and test."""
    return [(vectors.features[vectors.rows[part]], vectors.targets[vectors.rows[part]]) for part in ("train", "test")]


def _rmse(inputs: Array, labels: Array, theta: Array) -> float:
    return float(np.sqrt(np.mean((inputs @ theta - labels) ** 2)))


def _one_direction(tasks: Sequence[Samples]) -> list[Array]:
    """Return the tasks' θ_i = a_i B of least summed mean squared error, for two tasks and one direction B [d].

    B follows from the heads, of which the ratio alone counts: the best of 361 angles, then of 41 around it.
    """
    grams = np.stack([inputs.T @ inputs / len(labels) for inputs, labels in tasks])
    moments = np.stack([inputs.T @ labels / len(labels) for inputs, labels in tasks])
    middle, width = 0.0, np.pi / 2
    for count in (361, 41):
        angles = np.linspace(middle - width, middle + width, count)
        heads = np.stack([np.cos(angles), np.sin(angles)], 1)
        moment = heads @ moments
        directions = np.linalg.solve(np.einsum("at,tij->aij", heads**2, grams), moment[..., None])[..., 0]
        best = np.argmax((moment * directions).sum(1))  # what the errors are below those of zero weights
        middle, width = angles[best], angles[1] - angles[0]
    return [head * directions[best] for head in heads[best]]


def likeness(seed: int, steps: int = 1000) -> Values:
    """Measure the gain of ReLU networks where the source's Θ is a Θ + (1 − a) Θ′: ten units, 100 target samples."""
    mixtures = (0.0, 0.25, 0.5, 0.75, 1.0)
    rng = np.random.default_rng(seed)
    teacher, other = rng.normal(size=(2, 100, 10))
    deviations = np.where(np.arange(100) < 10, 100.0, 1.0)
    deviations /= np.sqrt(np.square(deviations).mean())
    root = deviations[:, None] * np.linalg.qr(rng.normal(size=(100, 100)))[0]

    def task(weights: Array, samples: int, stream: int) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = np.random.default_rng((seed, stream)).normal(size=(samples, 100)) @ root
        labels = np.maximum(inputs @ weights, 0.0).sum(1) / 10.0
        return torch.from_numpy(inputs).float(), torch.from_numpy(labels).float()

    target, test = task(teacher, 100, 1), task(teacher, 1000, 2)
    sources = [task(a * teacher + (1.0 - a) * other, 1000, 3) for a in (1.0, *mixtures)]  # the first one is not used
    stacked = [
        tuple(torch.stack(part) for part in zip(*rows, strict=True)) for rows in ([target] * 6, sources, [test] * 6)
    ]
    sourced, counts = torch.tensor([0.0] + [1.0] * 5), torch.full((6,), 1000)
    setting = figure3.Setting("relu", 100, 0.0, 10, (steps,))
    alone, *together = figure3.trained(setting, [seed] * 6, sourced, *stacked, counts)[steps]
    values = {
        f"gain, a = {a:g}, %": float(100.0 * (alone - error) / alone)
        for a, error in zip(mixtures, together, strict=True)
    }
    return {**values, "gain at a = 1 − at a = 0": values["gain, a = 1, %"] - values["gain, a = 0, %"]}


def capacity(seed: int) -> Values:
    """Measure three linear tasks of 40 samples, d = 20, noise 0.5, two cosines to a common θ, by the width r of B."""
    values: Values = {}
    for cosine in (0.95, 0.8):
        rng = np.random.default_rng(seed)
        common = _unit(rng.normal(size=20))
        thetas = [_at(common, cosine, rng) for _ in range(3)]
        tasks, tests = ([_linear(theta, samples, rng) for theta in thetas] for samples in (40, 1000))
        single = [np.linalg.lstsq(*task, rcond=None)[0] for task in tasks]
        alone, least = _mean_rmse(tests, single), _errors(tasks, single)
        for width in (1, 2, 3, 4):
            found, name = _shared(tasks, width, rng), f"r = {width}, cosine {cosine:g}, %"
            values[f"training error above the single tasks', {name}"] = 100.0 * (_errors(tasks, found) / least - 1.0)
            values[f"gain, {name}"] = 100.0 * (1.0 - _mean_rmse(tests, found) / alone)
    row = "gain, r = {}, cosine 0.95, %"
    return {**values, "gain at r = 1 − at r = 3 (cosine 0.95)": values[row.format(1)] - values[row.format(3)]}


def _linear(theta: Array, samples: int, rng: np.random.Generator) -> Samples:
    inputs = rng.normal(size=(samples, len(theta)))
    return inputs, inputs @ theta + 0.5 * rng.normal(size=samples)


def _errors(tasks: Sequence[Samples], thetas: Sequence[Array]) -> float:
    return float(sum(np.square(x @ theta - y).sum() for (x, y), theta in zip(tasks, thetas, strict=True)))


def _mean_rmse(tasks: Sequence[Samples], thetas: Sequence[Array]) -> float:
    return float(np.mean([_rmse(*task, theta) for task, theta in zip(tasks, thetas, strict=True)]))


def _at(vector: Array, cosine: float, rng: np.random.Generator) -> Array:
    """Draw a unit vector at a cosine with another one."""
    drawn = rng.normal(size=len(vector))
    return cosine * vector + np.sqrt(1.0 - cosine**2) * _unit(drawn - (drawn @ vector) * vector)


def _unit(vector: Array) -> Array:
    return vector / np.linalg.norm(vector)


def _shared(tasks: Sequence[Samples], width: int, rng: np.random.Generator) -> list[Array]:
    """Return the tasks' θ_i = B A_i of least summed squared error, by alternating least squares from a random B."""
    basis = rng.normal(size=(tasks[0][0].shape[1], width))
    last = np.inf
    for _ in range(500):
        basis = np.linalg.qr(basis)[0]
        heads = [np.linalg.lstsq(inputs @ basis, labels, rcond=None)[0] for inputs, labels in tasks]
        thetas = [basis @ head for head in heads]
        error = _errors(tasks, thetas)
        if error > last * (1.0 - 1e-10):
            break
        last = error
        gram = sum(np.kron(inputs.T @ inputs, np.outer(a, a)) for (inputs, _), a in zip(tasks, heads, strict=True))
        moment = sum(np.outer(inputs.T @ labels, a) for (inputs, labels), a in zip(tasks, heads, strict=True))
        basis = np.linalg.lstsq(gram, moment.ravel(), rcond=None)[0].reshape(basis.shape)
    return thetas


def subspace(seed: int) -> Values:
    """Measure which directions are best shared by four tasks of the same 100 inputs, d = 20, r = 2, noise 1."""
    rng = np.random.default_rng(seed)
    values: Values = {}
    for condition in (1.0, 10.0, 100.0):
        deviations = np.where(np.arange(20) < 2, condition, 1.0)
        inputs = rng.normal(size=(100, 20)) * deviations / np.sqrt(np.square(deviations).mean())
        labels = inputs @ rng.normal(size=(20, 4)) / np.sqrt(20) + rng.normal(size=(100, 4))
        tasks = [(inputs, labels[:, task]) for task in range(4)]
        least = _errors(tasks, _shared(tasks, 2, rng))
        for name, basis in _bases(inputs, labels, 2).items():
            theta = basis @ np.linalg.lstsq(inputs @ basis, labels, rcond=None)[0]
            values[f"error above the least, by {name}, κ = {condition:g}, %"] = 100.0 * (
                _errors(tasks, theta.T) / least - 1.0
            )
    values["error by Xᵀy − by Uᵀy (κ = 10)"] = values[_ABOVE.format("Xᵀy")] - values[_ABOVE.format("Uᵀy")]
    return values


_ABOVE = "error above the least, by {}, κ = 10, %"


def _bases(inputs: Array, labels: Array, rank: int) -> dict[str, Array]:
    """Return B [d, rank] of the leading singular vectors of three matrices [., T], for X = U D Vᵀ."""
    left, singular, right = np.linalg.svd(inputs, full_matrices=False)
    leading = {
        "Uᵀy": left.T @ labels,
        "X⁺y": np.linalg.lstsq(inputs, labels, rcond=None)[0],
        "Xᵀy": inputs.T @ labels,
    }
    bases = {name: np.linalg.svd(matrix, full_matrices=False)[0][:, :rank] for name, matrix in leading.items()}
    return {**bases, "Uᵀy": right.T @ (bases["Uᵀy"] / singular[:, None])}


def reweighting(seed: int) -> Values:
    """Measure SVD re-weighting of two tasks of the same 100 inputs, d = 20, r = 1, a fifth of one's labels by lot."""
    rng = np.random.default_rng(seed)
    values: Values = {}
    for cosine in (1.0, 0.96, 0.8, 0.5):
        first = _unit(rng.normal(size=20))
        thetas = np.stack([first, _at(first, cosine, rng)], 1)
        inputs, tests = rng.normal(size=(100, 20)), rng.normal(size=(2000, 20))
        labels = np.sign(inputs @ thetas)
        wrong = rng.permutation(100)[:20]
        labels[wrong, 0] = rng.choice([-1.0, 1.0], size=20)
        found = svd_task_weights(torch.from_numpy(inputs), torch.from_numpy(labels), 1).numpy()
        accuracy = {}
        for name, weights in (("equal", np.ones(2)), ("svd", found), ("oracle", np.array([0.5, 1.5]))):
            basis = _bases(inputs, labels * np.sqrt(weights), 1)["Uᵀy"]
            theta = basis @ np.linalg.lstsq(inputs @ basis, labels, rcond=None)[0]
            accuracy[name] = 100.0 * (np.sign(tests @ theta) == np.sign(tests @ thetas)).mean(0)
        values[f"weight of the noisy task over the clean one's, cosine {cosine:g}"] = float(found[0] / found[1])
        for name in ("svd", "oracle"):
            gain = accuracy[name] - accuracy["equal"]
            values[f"{name} − equal: accuracy (cosine {cosine:g})"] = float(gain.mean())
            values[f"{name} − equal: accuracy of the noisy task (cosine {cosine:g})"] = float(gain[0])
    return values


def descent(seed: int) -> Values:
    """Measure 400 steps d / 4L of GetMTL, L the largest curvature, on three quadratic losses; ε‖g₀‖ is 0.5 at first."""
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(3, 10, 10)) * np.sqrt([0.03, 0.05, 0.1])[:, None, None]
    curvatures, centres = roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(10), rng.normal(size=(3, 10))
    theta, step = 3.0 * rng.normal(size=10), 0.25 / float(np.linalg.eigvalsh(curvatures).max())

    def at(theta: Array) -> tuple[Array, Array, torch.Tensor]:
        """Return losses [T], Jacobian [T, d] and Gramian."""
        apart = theta - centres
        jacobian = np.einsum("tij,tj->ti", curvatures, apart)
        return 0.5 * (apart * jacobian).sum(1), jacobian, torch.from_numpy(jacobian @ jacobian.T)

    def stationarity() -> float:
        _, jacobian, gramian = at(theta)
        return float(np.linalg.norm(min_norm_weights(gramian).numpy() @ jacobian))

    seen, first = [], stationarity()
    eps = 0.5 / float(np.linalg.norm(at(theta)[1].mean(0)))
    for _ in range(400):
        losses, jacobian, gramian = at(theta)
        direction = solve_getmtl(gramian, eps).weights.numpy() @ jacobian
        theta = theta - step * direction
        fall, slopes = losses - at(theta)[0], jacobian @ direction
        seen.append([(fall > 0).all(), fall.mean() > 0, (slopes > 0).all(), (slopes >= slopes.mean()).all()])
    every, mean, slope, premise = 100.0 * np.mean(seen, 0)
    return {
        "steps in which every loss falls, %": every,
        "steps in which every loss falls − 100 %": every - 100.0,
        "steps in which the mean loss falls, %": mean,
        "steps whose direction lowers every loss at first order, %": slope,
        "steps with ⟨g_i, d⟩ ≥ ⟨g₀, d⟩ for all i, %": premise,
        "powers of ten by which the min-norm gradient falls": float(np.log10(first / stationarity())),
    }


CASES = {
    "relatedness": Case(
        "AAMTRL's figure 2: does the relatedness R of three Gaussians fall as they move apart?",
        relatedness,
        "R at distance 1 − R at distance 4",
    ),
    "transfer": Case(
        "Figure 2 of Wu, Zhang & Ré: do the data decide what a source gains, where its model is the same?",
        transfer,
        "the same model: gain with the same covariance − with a disjoint one",
    ),
    "likeness": Case(
        "Figure 9 of Wu, Zhang & Ré: does a source of more alike weights gain more?",
        likeness,
        "gain at a = 1 − at a = 0",
        seeds=10,
    ),
    "capacity": Case(
        "Proposition 1 of Wu, Zhang & Ré: is nothing transferred where the shared layer is as wide as there are tasks?",
        capacity,
        "gain at r = 1 − at r = 3 (cosine 0.95)",
    ),
    "subspace": Case(
        "Proposition 3 of Wu, Zhang & Ré: is the best shared layer of linear tasks of the same inputs that of Uᵀy?",
        subspace,
        "error by Xᵀy − by Uᵀy (κ = 10)",
    ),
    "reweighting": Case(
        "Figure 10 of Wu, Zhang & Ré on linear tasks: does SVD re-weighting gain where one task's labels are noisy?",
        reweighting,
        "svd − equal: accuracy (cosine 0.96)",
    ),
    "descent": Case(
        "GetMTL's theorem 4.2: does every loss fall in every step, and does the method end Pareto stationary?",
        descent,
        "steps in which every loss falls − 100 %",
        seeds=10,
    ),
}


def page(case: Case, rows: Mapping[str, Sequence[float]]) -> str:
    """Return the verdict and the table of a case."""
    found = {name: claims.paired(values) for name, values in rows.items()}
    decides, seeds = found[case.decides], range(len(rows[case.decides]))
    low, high = decides.mean - decides.half, decides.mean + decides.half
    lines = [
        f"**{decides.state(None)}**: {case.decides}: {decides.mean:+.2f} ({low:+.2f}, {high:+.2f}).",
        "",
        "Measured:" + " ".join((case.measure.__doc__ or "").split()).removeprefix("Measure"),
        "",
        f"| measured | mean | {' | '.join(map(str, seeds))} |",
        f"| --- |{' ---: |' * (len(seeds) + 1)}",
    ]
    for name, values in rows.items():
        cells = " | ".join(map(_shown, values))
        lines.append(f"| {name} | {_shown(found[name].mean)} ± {_shown(found[name].half)} | {cells} |")
    return "\n".join([*lines, ""])


def _shown(value: float) -> str:
    return f"{value:.2f}".replace("-0.00", "0.00")


def picture(name: str, rows: Mapping[str, Sequence[float]], path: Path) -> Path:
    """Draw the mean of each row with its interval."""
    found = {row: claims.paired(values) for row, values in rows.items()}
    means = Dots(
        x=[each.mean for each in found.values()], y=list(found), x_error=[each.half for each in found.values()]
    )
    x = Axis(title="mean over seeds, 95 % interval")
    panel = Panel(marks=[Level(at=0.0, axis="x"), means], x=x, y=Axis(names=list(found)[::-1]))
    return save([Chart(panels=[panel], title=name, width=9.0, height=1.2 + 0.2 * len(rows))], path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--home", type=Path, default=Path("outputs"))
    parser.add_argument("--seeds", type=int, help="how many, from 0 on; default: the case's")
    parser.add_argument("--picture", type=Path, help="file to draw the means in")
    given = parser.parse_args()
    if given.seeds is not None and given.seeds < 3:
        raise UserError(f"--seeds {given.seeds}: an interval takes three at least")
    torch.set_num_threads(1)
    case = CASES[given.case]
    rows = case.rows(range(given.seeds or case.seeds))
    text = page(case, rows)
    if given.picture:
        picture(given.case, rows, given.picture)
    write_atomically(Home.at(given.home).experiment(f"theory_{given.case}") / "page.md", text.encode())
    print(text)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"theory: {error}")
