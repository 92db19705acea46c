"""Eight of our own questions per task: a benchmark that needs no data and no network."""
