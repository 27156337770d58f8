"""The edge family's activities: requests to CRMs, and records of their messages."""
