"""Pure mathematics: min-norm points, simplex problems, proximal operators. Tensors in, tensors out.

Gramians are [..., T, T]; all computation is in float64, answers have the input's type and device. A function that can
fail returns a `Solution` with flags, or has a `solve_` twin that does.
"""

from mtlscale.solvers._gramian_common import Solution, hidden_part, length_bounds
from mtlscale.solvers.cagrad import cagrad_weights, solve_cagrad
from mtlscale.solvers.closed_forms import aligned_weights, config_weights, imtl_g_weights
from mtlscale.solvers.fairness import fair_weights, nash_weights
from mtlscale.solvers.getmtl import LARGEST_KAPPA, GetMTLSolution, getmtl_weights, solve_getmtl
from mtlscale.solvers.gradvac import gradvac_weights
from mtlscale.solvers.layer_gramians import embedding_gramian, gramian_cost, inner_products, layer_gramian
from mtlscale.solvers.linear_plus_norm import linear_plus_norm
from mtlscale.solvers.min_norm import min_norm_weights, solve_min_norm
from mtlscale.solvers.pcgrad import pcgrad_weights
from mtlscale.solvers.preferences import epo_weights, pmgda_weights
from mtlscale.solvers.primary import primary_weights
from mtlscale.solvers.prox import prox_element, prox_exclusive
from mtlscale.solvers.relations.conflicts import conflict_mask, conflicting_pairs, module_mask
from mtlscale.solvers.relations.grouping import best_groups, grouping_score
from mtlscale.solvers.relations.line_groups import group_means
from mtlscale.solvers.relations.transfer import (
    covariance_similarities,
    covariance_similarity,
    similarities_of_covariances,
    subspace_norms,
    svd_task_weights,
)
from mtlscale.solvers.simplex import first_largest, kl_ball_log_softmax, project_simplex
from mtlscale.solvers.upgrad import dual_projection_weights, upgrad_weights

__all__ = [
    "LARGEST_KAPPA",
    "GetMTLSolution",
    "Solution",
    "aligned_weights",
    "best_groups",
    "cagrad_weights",
    "config_weights",
    "conflict_mask",
    "conflicting_pairs",
    "covariance_similarities",
    "covariance_similarity",
    "dual_projection_weights",
    "embedding_gramian",
    "epo_weights",
    "fair_weights",
    "first_largest",
    "getmtl_weights",
    "gradvac_weights",
    "gramian_cost",
    "group_means",
    "grouping_score",
    "hidden_part",
    "imtl_g_weights",
    "inner_products",
    "kl_ball_log_softmax",
    "layer_gramian",
    "length_bounds",
    "linear_plus_norm",
    "min_norm_weights",
    "module_mask",
    "nash_weights",
    "pcgrad_weights",
    "pmgda_weights",
    "primary_weights",
    "project_simplex",
    "prox_element",
    "prox_exclusive",
    "similarities_of_covariances",
    "solve_cagrad",
    "solve_getmtl",
    "solve_min_norm",
    "subspace_norms",
    "svd_task_weights",
    "upgrad_weights",
]
