"""Figures as OpenMetrics, and the port where they are read."""
