"""What an acting slave learned, kept until the master that comes back has it.

It knows offsets, levels and timers, and nothing of who acts."""
