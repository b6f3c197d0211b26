"""The command ``chaos``: one module a subcommand, and the table of them in ``cli``."""
