"""Policies: one folder each; ``base`` says what a policy is, ``registry`` lists them."""
