"""The command line `bursar`, also installed as the kubectl plugin `kubectl bursar`.

`main` holds the table of commands, `lazy` loads them, and each command lives in a module of its own. Those
modules import click at the top and everything heavy inside the command, so that help, completion and
`version` start fast.
"""
