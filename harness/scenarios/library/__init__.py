"""Scenarios by name, a TOML file each. `chaos scenarios --show NAME` prints one to copy; no code is here."""
