"""The engine: decisions over one ledger, each one transaction, tried, explained and proven."""
