"""Recorded runs again: under another clock, with other methods, or as drawings of their trees."""
