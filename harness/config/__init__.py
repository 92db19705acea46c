"""What a person asks for: configuration files and flags, laid over each other."""
