"""What a member of a group without controllers does before clients may find it: it levels itself with who lives."""
