"""External baselines: other engines' generation, timed from outside."""
