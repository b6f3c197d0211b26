"""Where logs are: file systems, and the directories of nodes below a path."""
