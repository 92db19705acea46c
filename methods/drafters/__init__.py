"""Drafters: what proposes tokens for the draft tree."""
