"""Extensions of the core by neural architecture search."""

EXTENDS = {
    "search_algorithm": ["mtlscale.nas.evolution:nsga2"],
    "structure_figures": ["mtlscale.nas.report.cell_graphs:cell_figures"],
    "structure_plots": ["mtlscale.nas.report.cell_graphs:cell_plots"],
}
