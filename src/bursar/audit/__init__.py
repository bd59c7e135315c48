"""An independent checker of journals: no engine, no policies, plain dictionaries only."""
