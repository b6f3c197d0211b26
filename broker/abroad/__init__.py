"""Other groups' masters, as parts know them, and how a receipt says which of them holds its checkpoint.

It knows names and numbers, and neither sends nor stores anything.
"""
