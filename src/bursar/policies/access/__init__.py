"""Who may use a quota, and the priority that counts inside it."""
