"""The offline value system: traces of every schedule, values fitted to them, a scheduler distilled from those."""
