"""The contract of a wrapper: a balancer around another one, which the setting `of` names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from mtlscale.balancing.contract import Balancer, Needs, State
from mtlscale.config import UserError, knob
from mtlscale.config.registry.components import build
from mtlscale.config.run.run_parts import IDENTITY, settings

# What the training loop asks a balancer about; a wrapper answers as the balancer inside it does.
_ASKED = (
    "needs", "heads", "at", "aligns_heads", "positive_losses", "takes_negative", "per_task", "per_pair", "counters",
    "traced", "hints", "needs_post_step_losses", "ascent", "batchable",
)  # fmt: skip
_WEIGHTS = ("losses", "gramian")  # needs of the balancers that return one weight per task


class Wrapper(Balancer):
    """Base class of a wrapper.

    The wrapped balancer's entries of the state stay as they are, so what the loop knows of them (counters, traces,
    entries by task) holds here, too. `own` names the wrapper's own entries. A wrapper may stand in another one.
    """

    needs: ClassVar[Needs] = "gramian"  # of the class, as of its default balancer; an instance answers for its own
    cost: ClassVar[str] = "as the wrapped balancer"
    batchable: ClassVar[bool] = True
    own: ClassVar[tuple[str, ...]] = ()  # names of the state's entries that the wrapped balancer does not see

    of: str | dict[str, Any] = knob("mgda", help="the wrapped balancer: its name, or {name: {setting: value}}")

    def __post_init__(self) -> None:
        super().__post_init__()
        inner = _built(self.name, self.of)
        object.__setattr__(self, "inner", inner)
        object.__setattr__(self, "of", settings(inner))  # the same, whether a file or a run's spec names it
        for attribute in _ASKED:
            object.__setattr__(self, attribute, getattr(inner, attribute))
        object.__setattr__(self, "per_task", (*inner.per_task, *self.own))

    def __getattr__(self, name: str) -> Any:
        """Answer for the wrapped balancer's own settings, which parts of the loop read (`lam`, `limit`)."""
        if name.startswith("_") or "inner" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.__dict__["inner"], name)

    def rehearse(self) -> None:
        self.inner.rehearse()

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        inner_state: State = self.inner.init(tasks, seed=seed, batch=batch)
        return inner_state

    def after_step(self, losses: Tensor, state: State) -> State:
        return self._with_own(self.inner.after_step(losses, self._of_inner(state)), state)

    def on_epoch_end(self, losses: Tensor, state: State) -> State:
        return self._with_own(self.inner.on_epoch_end(losses, self._of_inner(state)), state)

    def _of_inner(self, state: State) -> State:
        return {name: value for name, value in state.items() if name not in self.own}

    def _with_own(self, inner_state: State, state: State) -> State:
        """Return the wrapped balancer's next state beside the wrapper's own entries of `state`."""
        return {**inner_state, **{name: state[name] for name in self.own}}


def _built(wrapper: str, of: str | Mapping[str, Any]) -> Balancer:
    """Build the wrapped balancer from its name, `{name: settings}`, or the form in which a run's spec keeps it."""
    if isinstance(of, str):
        name, options = of, {}
    elif "name" in of:
        name, options = of["name"], {key: value for key, value in of.items() if key not in IDENTITY}
    elif len(of) == 1 and isinstance(next(iter(of.values())), Mapping):
        ((name, options),) = of.items()
    else:
        raise UserError(f"{wrapper}: of = {of!r} should be a balancer's name, or {{name: {{setting: value}}}}")

    if not isinstance(name, str):
        raise UserError(f"{wrapper}: of = {of!r} should name a balancer")
    inner: Balancer = build("balancers", name, dict(options), f"{wrapper}: {name}")
    if inner.needs not in _WEIGHTS or hasattr(inner, "from_data") or hasattr(inner, "from_noise"):
        kinds = {"jacobian": "a direction", "validation": "a look-ahead", "modules": "weights by module"}
        actual = kinds.get(inner.needs, "weights made before training")
        raise UserError(f"{wrapper}: {name} has {actual}, not one weight per task and step; wrap another balancer")
    if isinstance(inner, Wrapper) and wrapper in (inner.name, *inner_names(inner)):
        raise UserError(f"{wrapper}: stands in itself; write it once")
    return inner


def inner_names(wrapper: Wrapper) -> list[str]:
    """Return the names of the balancers inside a wrapper, outermost first."""
    names, inner = [], wrapper.inner
    while True:
        names.append(inner.name)
        if not isinstance(inner, Wrapper):
            return names
        inner = inner.inner
