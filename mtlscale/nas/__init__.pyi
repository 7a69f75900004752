# Written by `python tests/house/stubs.py`.
from mtlscale.nas.cells import Genotype as Genotype
from mtlscale.nas.cells import darts_flops as darts_flops
from mtlscale.nas.cells import darts_parameters as darts_parameters
