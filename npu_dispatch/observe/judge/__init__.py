"""What processes do and what holds them up, told in words, figures and tables."""
