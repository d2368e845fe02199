"""Clues: what anybody may read off an attacker's view before attacking: first layer, subspace, span, start noise."""
