"""Schedulers, which decide when to call the middle drafter."""
