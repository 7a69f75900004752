"""Pure mathematics: min-norm points, simplex problems, proximal operators. Tensors in, tensors out.

Gramians are [..., T, T]; all computation is in float64, answers have the input's type and device. A function that can
fail returns a `Solution` with flags, or has a `solve_` twin that does.
"""

from mtlscale.lazy import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "LARGEST_KAPPA": ".getmtl",
        "GetMTLSolution": ".getmtl",
        "Solution": "._gramian_common",
        "aligned_weights": ".closed_forms",
        "best_groups": ".relations.grouping",
        "cagrad_weights": ".cagrad",
        "config_weights": ".closed_forms",
        "conflict_mask": ".relations.conflicts",
        "conflicting_pairs": ".relations.conflicts",
        "covariance_similarities": ".relations.transfer",
        "covariance_similarity": ".relations.transfer",
        "dual_projection_weights": ".upgrad",
        "embedding_gramian": ".layer_gramians",
        "epo_weights": ".preferences",
        "fair_weights": ".fairness",
        "first_largest": ".simplex",
        "getmtl_weights": ".getmtl",
        "gradvac_weights": ".gradvac",
        "gramian_cost": ".layer_gramians",
        "group_means": ".relations.line_groups",
        "grouping_score": ".relations.grouping",
        "hidden_part": "._gramian_common",
        "imtl_g_weights": ".closed_forms",
        "inner_products": ".layer_gramians",
        "kl_ball_log_softmax": ".simplex",
        "layer_gramian": ".layer_gramians",
        "length_bounds": "._gramian_common",
        "linear_plus_norm": ".linear_and_norm",
        "min_norm_weights": ".min_norm",
        "module_mask": ".relations.conflicts",
        "nash_weights": ".fairness",
        "pcgrad_weights": ".pcgrad",
        "pmgda_weights": ".preferences",
        "primary_weights": ".primary",
        "project_simplex": ".simplex",
        "prox_element": ".prox",
        "prox_exclusive": ".prox",
        "similarities_of_covariances": ".relations.transfer",
        "solve_cagrad": ".cagrad",
        "solve_getmtl": ".getmtl",
        "solve_min_norm": ".min_norm",
        "subspace_norms": ".relations.transfer",
        "svd_task_weights": ".relations.transfer",
        "upgrad_weights": ".upgrad",
    },
)
