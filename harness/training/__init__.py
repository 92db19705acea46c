"""Training schedulers: traces of every schedule, values fitted to them, networks distilled from those, studies."""
