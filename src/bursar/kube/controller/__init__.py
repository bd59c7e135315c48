"""The controller on Kubernetes: Bursar's control loop behind the API server, beside the cluster's own scheduler."""
