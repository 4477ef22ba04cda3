"""What the ranks of a job have called, and which of them the others wait for."""
