"""E2RNAS: effective, efficient and robust neural architecture search."""

from collections.abc import Mapping
from typing import Any, ClassVar

from mtlscale.architectures.phases import Source
from mtlscale.architectures.structure_search import CHOICE, WEIGHTS
from mtlscale.balancing import Balancer
from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.nas.cells import reachable, search_costs
from mtlscale.nas.search.settings import CellSearch
from mtlscale.nas.search.sources import STREAM, ArchitectureLosses, ChoiceSource, WeightsSource
from mtlscale.nas.search.supernet import CellSupernet


class E2RNAS(CellSearch):
    """E2RNAS: a cell is searched under five losses at once, which the run's balancer combines.

    The losses are cross entropy on validation; the divergence from uniform of predictions for out-of-distribution
    images (a stream `ood` without labels); cross entropy under attack by FGSM; and how far the search network's
    expected parameters and multiply-adds are from their targets. By itself it takes `mgda` with gradients over their
    length (`normalize: l2`), as the thesis does; `balancer: equal` is its search without MGDA. The weights learn the
    training loss and the second of these, and with `adversarial_weights` the third (table 3.6). Phase `retrain` trains
    the genotype as `cell_network` does.
    """

    name: ClassVar[str] = "e2rnas"
    source: ClassVar[str] = "Yue et al., 2020; thesis, chapter 3; scales and order of steps as in the author's code"
    balancer: ClassVar[Any] = {"name": "mgda", "options": {"normalize": "l2"}}

    ood: bool = knob(True, help="whether images from elsewhere take part, in both levels")
    adversarial: bool = knob(True, help="whether the loss under attack takes part")
    target_parameters: float | None = knob(4.0, low=0, help="L, in units; none: the loss is left out")
    target_flops: float | None = knob(None, low=0, help="F, in units; none: the number of L")
    parameter_unit: float | None = knob(1e5, low=0, open_low=True, help="none: the dearest search network's")
    flops_unit: float | None = knob(1e8, low=0, open_low=True, help="none: the dearest search network's")
    counts: str = knob(
        "exact", choices=("exact", "author"), help="what operations cost: as they do, or as the thesis' code says"
    )
    epsilon: float = knob(2 / 255, low=0, high=1, open_low=True, help="of the attack; pixels go from 0 to 1")
    ood_scale: float = knob(50.0, low=0, help="of the loss on images from elsewhere, where cells are chosen")
    ood_weight: float = knob(1.0, low=0, help="the same where weights learn")
    ood_over_classes: bool = knob(True, help="whether that divergence is divided by the number of classes")
    adversarial_weights: bool = knob(False, later=True, help="whether the weights learn the loss under attack, too")

    def upper_balancer(self) -> Balancer | None:
        return None

    def looks_elsewhere(self) -> bool:
        return self.ood

    def architecture_losses(self, model: CellSupernet) -> ArchitectureLosses:
        return ArchitectureLosses(
            second=self.order == "second",
            ood=self.ood_scale if self.ood else None,
            epsilon=self.epsilon if self.adversarial else None,
            targets=self._targets(model),
            over_classes=self.ood_over_classes,
        )

    def sources(self, model: CellSupernet) -> Mapping[str, Source]:
        choice = ChoiceSource(model, self.architecture_losses(model))
        attack = self.epsilon if self.adversarial_weights else None
        return {CHOICE: choice, WEIGHTS: WeightsSource(model, self.ood_weight, self.ood_over_classes, attack)}

    def _targets(self, model: CellSupernet) -> dict[str, Any]:
        """Return the costs, target and unit of each cost loss; raise `UserError` if no network can reach a target."""
        if self.target_parameters is None:
            return {}

        costs = search_costs(model.size.cells, self.search_channels, model.image, self.counts)  # type: ignore[arg-type]
        flops = self.target_parameters if self.target_flops is None else self.target_flops

        targets = {}
        for name, target, unit in (
            ("parameters", self.target_parameters, self.parameter_unit),
            ("flops", flops, self.flops_unit),
        ):
            low, high = reachable(costs[name])
            unit = unit or high
            if not low <= target * unit <= high:
                raise UserError(
                    f"e2rnas: target_{name} = {target:g} in units of {unit:g}: no network of the space can reach that; "
                    f"with {model.size.cells} cells of {self.search_channels} channels it goes from {low / unit:g} to "
                    f"{high / unit:g}"
                )
            targets[name] = (costs[name], target, unit)

        return targets

    def check_suite(self, suite: TaskSuite) -> None:
        if self.ood and STREAM not in suite.unlabelled:
            raise UserError(
                f"e2rnas needs images from elsewhere, {suite.name} has no stream {STREAM!r}; give the data set the "
                "option `ood`, or set ood: false"
            )
