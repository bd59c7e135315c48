"""Simulation of demand under quotas, in virtual time: traces, runs, figures and reports."""
