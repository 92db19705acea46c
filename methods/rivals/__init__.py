"""Other methods of the field, on our engine."""
