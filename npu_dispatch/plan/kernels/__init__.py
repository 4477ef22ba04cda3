"""Kernel times that were measured on the real device (docs/plan.md)."""
