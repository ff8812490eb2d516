"""Readers of examples; see `ucb.waves.sources`."""
