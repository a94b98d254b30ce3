"""What crosses the socket: the method table, requests, replies, events, errors."""
