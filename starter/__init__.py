"""The CLI: it sends requests through Temporal and prints outcomes. It never touches the store."""
