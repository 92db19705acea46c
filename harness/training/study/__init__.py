"""`treegraft study`: schedulers fitted under one condition and run under another, on traces of recorded runs."""
