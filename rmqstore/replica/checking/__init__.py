"""Looks before a replica begins, which change nothing: above `following`, whose words they use."""
