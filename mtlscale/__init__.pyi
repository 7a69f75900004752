# Written by `python tests/house/stubs.py`.
from mtlscale.api.comparison import compare as compare
from mtlscale.api.running import run as run
from mtlscale.api.sources import load_records as load_records
from mtlscale.config import Experiment as Experiment
from mtlscale.config import UserError as UserError
from mtlscale.config import load_experiment as load_experiment
from mtlscale.inference import ExportedModel as ExportedModel
from mtlscale.inference import load_model as load_model
from mtlscale.report.results import Results as Results
from mtlscale.training.task_balancer import TaskBalancer as TaskBalancer
from mtlscale.version import __version__ as __version__
