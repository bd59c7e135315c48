"""What limits and gpus share: the worker pod contract, the GPUs there are, and which of them a worker gets."""
