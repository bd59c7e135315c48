"""CrossQuota: how much of a GPU node pods without a GPU may use, and which of the GPU nodes they are sent to."""
