"""Eight questions a task, written for this project: a suite that runs with no data and no network."""
