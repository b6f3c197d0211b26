"""Looking at messages, queues and consumers' progress without consuming. It reads the store, and changes nothing."""
