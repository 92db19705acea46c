"""Distilling a middle drafter from a target: self-written text, training, agreement, the shipped file."""
