# Written by `python tests/house/stubs.py`.
from mtlscale.balancing.contract import Balancer as Balancer
from mtlscale.balancing.contract import JacobianBalancer as JacobianBalancer
from mtlscale.balancing.contract import ModuleBalancer as ModuleBalancer
from mtlscale.balancing.contract import Needs as Needs
from mtlscale.balancing.contract import State as State
from mtlscale.balancing.contract import ValidationBalancer as ValidationBalancer
from mtlscale.balancing.contract import balance as balance
from mtlscale.balancing.contract import balanced_tasks as balanced_tasks
from mtlscale.balancing.contract import direct as direct
from mtlscale.balancing.contract import look_again as look_again
from mtlscale.balancing.contract import look_ahead_weights as look_ahead_weights
from mtlscale.balancing.contract import rehearsal as rehearsal
from mtlscale.balancing.decorated import balancer as balancer
