"""Log losses: another balancer at work on log ℓ_t, which no rescaling of a loss changes."""

from typing import ClassVar

from torch import Tensor

from mtlscale.balancing.contract import State
from mtlscale.balancing.wrapper import Wrapper
from mtlscale.config import UserError

_FLOOR = 1e-12  # of a loss, as in log_loss


class LogLosses(Wrapper):
    """Another balancer at work on log ℓ_t: it sees log ℓ_t and g_t / ℓ_t; its weights ω̂_t apply as ω̂_t / ℓ_t.

    Source: the logarithmic transformation of DB-MTL (Lin et al., 2023), section 3.1, and of IGB (2023). Around `equal`
    it is `log_loss`. Losses have to be positive (floor of 1e-12). A task alone keeps its plain loss, and so do heads
    that do not follow the weights.
    """

    name: ClassVar[str] = "log_losses"
    source: ClassVar[str] = "Lin et al., DB-MTL, 2023, section 3.1"
    results_version: ClassVar[int] = 2  # tasks at rest are left out

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inner.positive_losses:
            raise UserError(
                f"log_losses: {self.inner.name} is made for positive losses, and logarithms may be negative; "
                "wrap another balancer"
            )
        object.__setattr__(self, "positive_losses", True)
        object.__setattr__(self, "hints", tuple(hint for hint in self.inner.hints if hint != "task_scale"))

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        if losses.shape[-1] == 1:
            weights, next_state = self.inner(losses, gramian, state)
            return weights, next_state

        inverse = 1.0 / losses.clamp(min=_FLOOR)
        if gramian is not None:
            gramian = inverse.unsqueeze(-1) * gramian * inverse.unsqueeze(-2)
        weights, next_state = self.inner(_log(losses), gramian, state)
        return weights * inverse, next_state

    def after_step(self, losses: Tensor, state: State) -> State:
        return super().after_step(_log(losses), state)

    def on_epoch_end(self, losses: Tensor, state: State) -> State:
        return super().on_epoch_end(_log(losses), state)


def _log(losses: Tensor) -> Tensor:
    return losses.clamp(min=_FLOOR).log()
