"""Slave acting master (groups without controllers): which members live, which slave acts, which broker may deliver."""
