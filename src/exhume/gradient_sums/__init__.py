"""Gradient sums ``Σ_j Σ_c α_jc ∇θ f_c(x_j; θ)`` in closed form and by autograd, shared by several attacks."""
