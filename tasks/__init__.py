"""The six tasks: sources of their questions, and how those become prompts."""
