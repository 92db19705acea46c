"""The harness: a run from its configuration to rows of measurements."""
