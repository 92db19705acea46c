"""From a configuration to rows: plan, preflight checks, blocks, certificates."""
