"""How long a test waits for what must come, and for what must not take quadratic time."""

HANGS = 500.0
"""Seconds after which something is taken to hang; on a machine at rest nothing takes a tenth."""

NOT_QUADRATIC = 30.0
"""Seconds of a processor, whatever else runs on it, where linear work takes a few at most and
quadratic work takes many minutes."""
