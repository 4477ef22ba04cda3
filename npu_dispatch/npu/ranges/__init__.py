"""Ranges and marks that a program gives names to, for traces."""
