"""From rows to knowledge: statistics and tables."""
