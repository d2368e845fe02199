"""Core: errors, progress, files, devices and checkpoints, which every other package builds on."""
