"""The control loop: objects in, decisions out, the outside world behind ports."""
