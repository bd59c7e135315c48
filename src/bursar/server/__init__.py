"""Bursar as a service on one machine: a durable cluster behind an HTTP API."""
