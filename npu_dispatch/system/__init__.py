"""What the readers ask of Linux: /proc, and files that other processes write."""
