from mtlscale.balancing import balancer
from mtlscale.config import knob


@balancer(needs="losses")
def inverse_loss(losses, power=knob(1.0, low=0, search=(0.1, 4.0, "log"), help="0 is equal weighting")):
    """Weights inversely proportional to a power of the losses."""
    return losses.clamp(min=1e-12) ** -power


@balancer(needs="gramian", heads="mean")
def shortest(gramian):
    """The weight of the task with the shortest gradient alone."""
    norms = gramian.diagonal()
    return (norms == norms.min()).double()
