"""Inversion: the inputs of a network's lower part (its trunk) from the features that the trunk computed for them."""
