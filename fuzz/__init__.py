"""Coverage-guided fuzzing of every decoder of foreign or stored bytes. ``python -m fuzz --help``."""
