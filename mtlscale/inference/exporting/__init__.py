"""Writing an exported model: source run, description and model card."""
