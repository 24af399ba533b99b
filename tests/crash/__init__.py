"""What a disk can do to a store: disks that forget, fail or stop, and the sweeps over them."""
