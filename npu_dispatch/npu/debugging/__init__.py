"""What shows a program its waits, its races and its named ranges."""
