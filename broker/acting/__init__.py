"""Slave acting master, its rules: who lives in a group without controllers, who acts, who may deliver what is due."""
