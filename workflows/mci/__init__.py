"""MCI and VM: creating them, controlling them, removing them, changing their number, and looking at them."""
