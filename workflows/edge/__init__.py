"""The edge: what a user asks for, what a CRM says, and the workflows that keep the two in step."""
