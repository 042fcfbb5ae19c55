"""How long a test waits for what must come."""

HANGS = 500.0
"""Seconds after which something is taken to hang; on a machine at rest nothing takes a tenth."""
