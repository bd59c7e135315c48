"""Real jobs on this machine: the agent, its socket, and the client and shim of ``bursar run``."""
