"""Request-reply: the broker pushes the reply to a message to its sender, over the sender's connection."""
