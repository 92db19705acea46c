"""`treegraft fit` and `treegraft oracle`: from a recorded run to an online scheduler, and what hindsight would do."""
