"""Studies of Loo et al. (2023), "Understanding reconstruction attacks with the neural tangent kernel"."""
