"""Cells of the DARTS space: genotypes, what they cost, and the network that trains one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from mtlscale.config import Task, TaskSuite, UserError
from mtlscale.config.registry import components
from mtlscale.nas.cells import (
    GENOTYPES,
    OPERATIONS,
    Genotype,
    darts_flops,
    darts_parameters,
    discretised,
    expected,
    reachable,
    search_costs,
)
from mtlscale.nas.encoders.darts_cells import DartsCells, DartsCellsModule

TASK = Task(name="kind", loss="cross_entropy", outputs=10, metrics=("accuracy",))


def suite(size: int = 32) -> TaskSuite:
    return TaskSuite(name="p", tasks=(TASK,), inputs="shared", input_kind="image", input_shape=(3, size, size))


def module(size: int = 32, **knobs: Any) -> DartsCellsModule:
    found = components.build("encoders", "darts_cells", {"cells": 3, "channels": 2, "cutout": 0, **knobs}).build(
        suite(size)
    )
    assert isinstance(found, DartsCellsModule)
    return found


@pytest.mark.parametrize(("name", "millions"), [("S1", 2.546), ("S2", 3.531), ("DARTS_V2", 3.349)])
def test_the_published_genotypes_have_the_published_parameters(name: str, millions: float) -> None:
    assert round(darts_parameters(name) / 1e6, 3) == millions
    assert (
        darts_parameters(GENOTYPES[name].text()) == darts_parameters(GENOTYPES[name].plain()) == darts_parameters(name)
    )


@pytest.mark.parametrize(("name", "millions"), [("S1", 3.76), ("S2", 4.93), ("DARTS_V2", 4.72)])
def test_on_large_images_the_published_genotypes_have_the_published_parameters(name: str, millions: float) -> None:
    recipe = components.build("encoders", "darts_cells_imagenet", {"genotype": name})
    with torch.device("meta"):
        network = recipe.build(suite(224))
    counted = sum(p.numel() for p in network.parameters()) + (network.features + 1) * 1000
    assert round(counted / 1e6, 2) == millions


def test_counts_are_those_of_the_network() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    for number, (cells, channels, size) in enumerate([(1, 2, 8), (3, 3, 9)]):
        network = module(size, genotype=f"random:{number}", cells=cells, channels=channels).eval()
        parameters = sum(p.numel() for p in network.parameters()) + (network.features + 1) * 10
        assert parameters == darts_parameters(network.genotype, cells, channels)
        with FlopCounterMode(display=False) as counter:
            network(torch.zeros(1, 3, size, size, dtype=torch.uint8))
        flops = darts_flops(network.genotype, cells, channels, size=(size, size))
        assert counter.get_total_flops() // 2 + network.features * 10 == flops


def test_an_auxiliary_head_is_counted_where_it_is_asked_for() -> None:
    from mtlscale.nas.search.network import CellNetwork

    for auxiliary in (0.0, 0.4):
        network = CellNetwork(suite(), module(cells=4), 0.0, auxiliary, "x")
        counted = darts_parameters("DARTS_V2", 4, 2, auxiliary=auxiliary > 0)
        assert counted == sum(p.numel() for p in network.parameters())


def test_a_genotype_as_numbers_is_the_one_that_a_search_over_numbers_names() -> None:
    genotype, bounds = Genotype.random(torch.Generator().manual_seed(4)), Genotype.bounds()
    numbers = genotype.numbers()
    assert len(numbers) == len(bounds) == 32 and all(0 <= n < bound for n, bound in zip(numbers, bounds, strict=True))
    assert Genotype.of(" ".join(map(str, numbers))) == genotype
    largest = [bound - 1 for bound in bounds]
    assert Genotype.of_numbers(largest).numbers()[::2] == largest[::2]  # every operation has one number
    with pytest.raises(UserError, match="32"):
        Genotype.of("1 2 3")


def test_the_author_s_count_at_equal_weights() -> None:
    equal = torch.full((2, 14, 8), 1 / 8, dtype=torch.float64)
    costs = search_costs(8, 16, (32, 32), "author")
    assert round(float(expected(costs["parameters"], equal)) / 1e5, 3) == 2.305
    exact = search_costs(8, 16, (32, 32))
    assert reachable(exact["parameters"]) == (0.0, 686_336.0)  # every edge a 5x5 separable convolution
    assert float(expected(exact["flops"], equal)) < float(expected(costs["flops"], equal))


def test_expected_costs_of_one_choice_are_its_costs() -> None:
    """Of a search network of one cell the difference of two choices is that of the networks they become."""
    one, other = torch.zeros(2, 2, 14, 8, dtype=torch.float64)
    one[:, :, 1] = other[:, :, 1] = 1.0
    other[1, 0] = torch.eye(8)[OPERATIONS.index("sep5")]
    costs = search_costs(1, 6, (8, 8))  # its one cell is a reduction
    found = [discretised(weights[0], weights[1]) for weights in (one, other)]
    assert found[1].reduce[0][0] == ("sep5", 0)
    for name, count in (
        ("parameters", lambda g: darts_parameters(g, 1, 6)),
        ("flops", lambda g: darts_flops(g, 1, 6, size=(8, 8))),
    ):
        assert float(expected(costs[name], other) - expected(costs[name], one)) == count(found[1]) - count(found[0])


def test_a_genotype_goes_through_text_numbers_and_plain_lists() -> None:
    for seed in range(20):
        genotype = Genotype.random(torch.Generator().manual_seed(seed))
        for same in (genotype.text(), genotype.plain(), genotype):
            assert Genotype.of(same) == genotype
        numbers = genotype.numbers()
        assert Genotype.of_numbers(numbers) == genotype
        assert all(0 <= n < bound for n, bound in zip(numbers, Genotype.bounds(), strict=True))
        assert all(a[1] != b[1] for cell in (genotype.normal, genotype.reduce) for a, b in cell)
    whatever = Genotype.of_numbers([97 * i for i in range(32)])  # of an evolution's integers
    assert Genotype.of(whatever.text()) == whatever


def test_the_two_edges_with_the_likeliest_operations_are_kept() -> None:
    weights = torch.zeros(14, 8)
    weights[:, 0] = 9.0  # `none` is never chosen
    weights[2, 3], weights[4, 4], weights[3, 5] = 0.2, 0.5, 0.1
    cell = discretised(weights, weights).normal
    assert cell[1] == (("skip", 0), ("sep3", 2))
    assert cell[0][0][1] == 0 and cell[0][1][1] == 1


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ("S3", "unknown genotype 'S3': did you mean"),
        (
            GENOTYPES["S1"].text().replace("sep5 3", "sep7 3"),
            "genotype, normal: unknown operation 'sep7': did you mean",
        ),
        (GENOTYPES["S1"].text().replace("sep5 3", "none 3"), "unknown operation 'none'"),
        (GENOTYPES["S1"].text().replace("sep5 3", "sep5 4"), "normal: node 2 reads state 4; it may read 0 to 3"),
        (GENOTYPES["S1"].text().replace(", sep3 2", ""), "genotype, normal: 7 edges, but 4 nodes have two each"),
        (GENOTYPES["S1"].text().replace("sep5 3", "sep5"), "genotype, normal: 'sep5' is no operation and the number"),
        ("normal: sep3 0", "a genotype is written as"),
    ],
)
def test_what_is_no_genotype_is_refused(given: str, what: str) -> None:
    for read in (darts_parameters, lambda text: DartsCells(genotype=text)):
        with pytest.raises(UserError, match=what):
            read(given)


def test_a_genotype_comes_from_a_file_or_the_run_s_seed(tmp_path: Path) -> None:
    file = tmp_path / "cell.txt"
    file.write_text(GENOTYPES["S2"].text().replace("; ", ";\n"), encoding="utf-8")
    assert module(file=str(file)).genotype == GENOTYPES["S2"]
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(module(genotype="random").genotype)
    assert drawn[0] == drawn[1] != drawn[2]
    assert module(genotype="random:4").genotype == module(genotype="random:4").genotype


def test_stages_end_where_the_map_is_halved() -> None:
    for cells, widths in ((1, (16,)), (2, (8 * 2, 8 * 4)), (6, (8, 16, 32))):
        network = module(16, cells=cells).eval()
        recipe = components.build("encoders", "darts_cells", {"cells": cells})
        assert len(network.stages) == recipe.stage_count == len(network.widths)
        assert network.widths == widths if cells != 2 else True
        features, memory = network.prepare(torch.zeros(2, 3, 16, 16)), dict[str, Any]()
        for stage, width in enumerate(network.widths):
            features = network.stage(stage, features, memory)
            assert features.shape[1] == width
        assert "auxiliary" in memory


def test_cutout_covers_a_square_and_drop_path_leaves_edges_out() -> None:
    network = module(16, cutout=6, drop_path=0.0)
    pixels = network.prepare(torch.ones(64, 3, 16, 16))
    covered = (pixels == 0).all(1).flatten(1).sum(1)
    assert covered.max() == 36 and covered.min() >= 9 and (covered < 36).any()
    assert torch.equal(network.eval().prepare(torch.ones(4, 3, 16, 16)), torch.ones(4, 3, 16, 16))
    network = module(16, cutout=0, drop_path=0.5)
    factors = network._dropped(torch.zeros(400, 2, 4, 4))
    assert factors is not None and factors.shape == (8, 400)
    assert set(factors.unique().tolist()) == {0.0, 2.0} and abs(float(factors.mean()) - 1.0) < 0.1
    network.progress = 0.0
    assert network._dropped(torch.zeros(4, 2, 4, 4)) is None
    with pytest.raises(UserError, match="darts_cells: cutout = 16 covers images of 16 x 16; lower it"):
        module(16, cutout=16)
