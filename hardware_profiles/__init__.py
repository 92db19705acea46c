"""Devices: latency curves, profiles and telemetry."""
