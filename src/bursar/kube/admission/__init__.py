"""Admission on Kubernetes: which pods are governed, the gate, the guards, and the webhook for quota kinds."""
