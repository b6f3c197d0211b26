"""Targets by name, a TOML file each: `chaos scenarios` lists them, `chaos scenarios --show NAME` prints one to copy."""
