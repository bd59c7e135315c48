"""Nodes: physical capacity, and the rules by which a node takes a claim."""
