"""Other groups' masters, as parts see them, and tickets, which say which of them holds a checkpoint. No I/O."""
