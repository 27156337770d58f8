"""MCI: connections and who uses them, VMs that come into a running action, and what surveys write."""
