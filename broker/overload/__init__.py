"""Overload protection: requests that waited too long are refused, since their senders may have given up."""
