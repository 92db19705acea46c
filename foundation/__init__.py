"""Shared by every room: errors, registries, file writing, progress bars; nothing about decoding."""
