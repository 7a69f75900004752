# Written by `python tests/house/stubs.py`.
from mtlscale.inference.description import MODEL as MODEL
from mtlscale.inference.description import Description as Description
from mtlscale.inference.description import read_description as read_description
from mtlscale.inference.exporting.write import export as export
from mtlscale.inference.model import ExportedModel as ExportedModel
from mtlscale.inference.model import load_model as load_model
from mtlscale.inference.predictions import Prediction as Prediction
