"""Histories: requests of clients and their answers, event by event, in order of time.

    events       an event, what a history must be, operations
    jsonlines    our files: an event a line
    edn, jepsen  Jepsen's files, and its text
    openchaos    OpenChaos' files
    tables       CSV, TSV: an event or a whole operation a line
    reading      files in any of these formats, which it recognises

The words are Jepsen's. ``harness.checkers`` judges histories.
"""
