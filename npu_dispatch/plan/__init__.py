"""How a program would run on a device of stated speed (docs/plan.md)."""
