"""What one store holds now, frozen."""
