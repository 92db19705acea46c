"""The draft tree, the model wrapper, verification, sampling, stopping and timing."""
