"""The study of Runkel et al. (2024): what the starting point of an attack is worth."""
