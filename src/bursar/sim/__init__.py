"""The embedded cluster: pods that run in virtual time behind the ports of the control loop, and scenario files."""
