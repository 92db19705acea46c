"""The decoding loop, the draft tree, the model wrapper and verification."""
