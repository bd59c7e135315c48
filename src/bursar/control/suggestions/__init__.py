"""What would admit a waiting claim: candidates, trials, and what is shown."""
