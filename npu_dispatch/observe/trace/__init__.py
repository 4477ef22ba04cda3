"""What each stream did when: trace files, and timelines made of them."""
