"""Cascade Speculative Drafting (Chen et al., 2023)."""
