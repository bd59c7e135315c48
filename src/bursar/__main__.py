"""`python -m bursar`: the command line without an installed script."""

from bursar.cli.main import main

if __name__ == "__main__":
    main()
