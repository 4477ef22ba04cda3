"""How a program runs as one rank of a job that has no others."""
