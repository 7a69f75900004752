"""Definitions of the terms of a search and of a diagnosis."""

SEARCH = {
    "score": "Of a trial on validation, at its best epoch: the mean over tasks of the metric searched for, with "
    "a minus sign where less is better, so that more always is; a mean of logarithms where metrics differ in kind.",
    "trial": "A run with settings that the search has drawn. All methods have the same number of them.",
    "chosen": "The trial with the best score; its settings are trained again on fresh seeds.",
    "near a bound": "The chosen value lies within a twentieth of its range from an end (of the logarithm, where the "
    "range is logarithmic), or is the first or last of a list of numbers. The best value may lie beyond.",
    "importance": "Share of a setting in the variance of the score over the trials.",
}

DIAGNOSIS = {
    "affinity": "By what share a step along the gradient of the row's task lowers the loss of the column's task. Above "
    "0 sharing helps at once.",
    "labels": "How the labels of two tasks go together on the samples that have both: Pearson's r, φ or Cramér's V.",
    "covariance": "Covariance similarity of the tasks' inputs: how much their leading directions overlap, from 0 to 1.",
    "conflict": "Cosine of the tasks' gradients over what they share; below 0 they pull apart.",
    "dendrogram": "Tasks are joined one after the other, those first whose mean affinity is highest.",
    "suggested groups": "What is joined at a mean affinity above 0.",
}
