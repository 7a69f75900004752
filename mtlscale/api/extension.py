"""The pictures that a finished run leaves, drawn by the report on the worker that trained it."""

EXTENDS = {"after_training": ["mtlscale.api.run_artifacts:write"]}
