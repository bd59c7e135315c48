"""What limits and gpus share: the worker pod contract, the GPUs there are, which of them a worker gets, and
who counts where.
"""
