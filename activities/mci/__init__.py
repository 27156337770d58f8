"""What MCIs ask of the world: of the clouds, for VMs and what they share; of the inventory, for many VMs at once."""
