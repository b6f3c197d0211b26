"""Looking at messages, queues and consumers' progress without consuming."""
