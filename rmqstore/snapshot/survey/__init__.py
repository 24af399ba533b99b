"""The look at one store as it is now, frozen."""
