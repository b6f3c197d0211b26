"""Messages in: sends of producers, batches, and what consumers send back."""
