"""`python -m enginectl` is the command itself."""

from enginectl.cli import main

if __name__ == "__main__":
    main()
