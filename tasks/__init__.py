"""The six tasks: where their questions come from and how they become prompts."""
