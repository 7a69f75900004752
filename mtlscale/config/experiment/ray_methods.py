"""Methods that look for a front: one method of the file, several rays, one network for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtlscale.config.errors import UserError
from mtlscale.config.preferences import ray_label, ray_settings
from mtlscale.config.registry import components
from mtlscale.config.settings.models import ComponentSpec, MethodSpec


def on_rays(method: MethodSpec) -> tuple[MethodSpec, ...]:
    """Return a method with `rays` as one method for each of them, and any other method as it is.

    Raises:
        UserError: If its balancer takes no preference, or has one of its own.
    """
    if method.rays is None:
        return (method,)

    methods = []
    for setting in ray_settings(method.rays):
        balancer = _with(method.label, method.balancer, setting)
        label = ray_label(method.label, setting)
        methods.append(method.model_copy(update={"label": label, "balancer": balancer, "rays": None}))
    return tuple(methods)


def _with(where: str, balancer: ComponentSpec, setting: Mapping[str, Any]) -> ComponentSpec:
    """Return a balancer, or the one that it wraps, with the setting of a ray."""
    knobs = components.component("balancers", balancer.name).knobs()
    if "of" in knobs:
        default, _ = knobs["of"]
        inner = ComponentSpec.model_validate(balancer.options.get("of", default))
        wrapped = _with(where, inner, setting)
        of = {"name": wrapped.name, **wrapped.options}
        return ComponentSpec(name=balancer.name, options={**balancer.options, "of": of})

    if "ray" not in knobs or "preference" not in knobs:
        raise UserError(
            f"method {where}: rays: {balancer.name} takes no preference; choose linear_scalarization, epo, pmgda or pbi"
        )
    own = [name for name in ("ray", "preference") if balancer.options.get(name)]
    if own:
        raise UserError(f"method {where}: has rays, and a {own[0]} of its balancer; drop one")
    return ComponentSpec(name=balancer.name, options={**balancer.options, **setting})
