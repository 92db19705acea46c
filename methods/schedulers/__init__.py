"""Schedulers: when the middle drafter is called."""
