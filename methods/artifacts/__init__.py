"""Packaged trained artifacts, and reading and writing their files."""
