"""Bursar on Kubernetes: the control loop behind its ports, with the API server outside."""
