"""The command ``chaos``: one module for each subcommand, and their table in ``cli``."""
