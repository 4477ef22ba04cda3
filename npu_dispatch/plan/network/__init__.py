"""What steps take on more ranks, by how these are linked (docs/plan.md)."""
