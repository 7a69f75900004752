"""Extensions of the core by neural architecture search."""

EXTENDS = {
    "search_algorithm": ["mtlscale.nas.evolution:nsga2"],
    "structure_charts": ["mtlscale.nas.report.cell_graphs:cell_charts"],
}
