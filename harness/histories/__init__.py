"""Histories: what clients asked of a system and were told, event by event, in the order in which it happened.

    events       an event, what a history must be, operations
    jsonlines    our files: an event a line
    edn, jepsen  Jepsen's files, and its text
    openchaos    OpenChaos' files
    tables       CSV, TSV: an event or a whole operation a line
    reading      files of any of these, without being told of which

The words are Jepsen's. What judges a history is ``harness.checkers``.
"""
