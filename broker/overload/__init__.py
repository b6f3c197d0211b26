"""Answers in the place of work that waited too long: whoever sent it may have given it up."""
