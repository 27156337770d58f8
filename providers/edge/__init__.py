"""CRMs: how requests reach them, and the reference CRM with its simulated platform."""
