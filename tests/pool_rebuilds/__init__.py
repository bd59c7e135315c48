"""Random histories of quota trees, each compared with a cluster that is rebuilt from the objects that it left.

* ``objects``: draws nodes, profiles, quotas, pods, gangs and options.
* ``history``: an embedded cluster that is changed step by step.
* ``rebuild``: a new cluster from the objects of another one, and what must be equal in both.
* ``__main__``: the long run (``make soak``); ``test_rebuilds`` is the short one.
"""
