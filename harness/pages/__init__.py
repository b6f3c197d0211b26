"""The page of a run: one self-contained HTML file. ``content`` is what it tells, ``files`` reads and writes it."""
