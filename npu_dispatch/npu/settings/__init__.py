"""Switches, options and limits under the vendor's names."""
