"""Pre-online: a member of a group without controllers catches up with the living members before clients find it."""
