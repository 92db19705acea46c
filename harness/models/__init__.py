"""Model pairs: what they are, where their weights come from, and how they are loaded."""
