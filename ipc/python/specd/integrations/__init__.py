"""Engines over specd for packages of others. Nothing here is imported by `import specd`."""
