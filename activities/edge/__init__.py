"""The edge's activities: requests to CRMs, and what their messages change in the inventory."""
