"""Standing in: a slave asks name servers for its group's members, and so learns when to act for its master."""
