"""Devices: clocks, latency curves and telemetry."""
