"""The command line: commands by what a person wants to do, loaded when they are called."""
