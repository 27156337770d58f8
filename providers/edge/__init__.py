"""Transports of requests to CRMs, and the reference CRM with its simulated platform."""
