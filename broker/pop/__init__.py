"""POP: messages are given for a time, acknowledged one by one, and come back if they are not. The log has its state."""
