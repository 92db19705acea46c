"""Drafters, which propose tokens for the draft tree."""
