"""Calibrated grafting (ours): both drafters' evidence on one scale, trees sized by the machine's costs."""
