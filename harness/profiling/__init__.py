"""Measuring a hardware profile of a pair on this machine."""
