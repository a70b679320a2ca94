"""Studies with committed results: ``python -m experiments.NAME``."""
