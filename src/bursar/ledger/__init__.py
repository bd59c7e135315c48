"""The ledger: claims, accounts and cells, changed only inside transactions that can be undone exactly."""
