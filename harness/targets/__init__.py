"""What is tortured: a target is one file that says how its processes are started and how its clients are spoken to."""
