"""The command line `bursar`, also installed as the kubectl plugin `kubectl bursar`.

`main` holds the table of commands and loads a command's module when it runs. Those modules import click at the top and
everything heavy inside the command, so that help, completion and `version` start fast.
"""
