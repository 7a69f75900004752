# Written by `python tests/house/stubs.py`.
from mtlscale.testing.balancers import Bound as Bound
from mtlscale.testing.balancers import Check as Check
from mtlscale.testing.balancers import balancer_checks as balancer_checks
