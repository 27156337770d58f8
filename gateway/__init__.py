"""The HTTP gateway: actions, reads and events for programs that speak neither Python nor Temporal."""
