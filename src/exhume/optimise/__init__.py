"""Optimise: the loop that minimises an objective for one run or many."""
