"""Request-reply: the answer to a message goes to whoever sent it, over the connection that it has to this broker."""
