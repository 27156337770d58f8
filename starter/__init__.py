"""The CLI: words become a request, Temporal carries it, an outcome comes back. It never touches the store."""
