"""GPUs of this machine: what there is, who uses them, and how jobs are kept to theirs."""
