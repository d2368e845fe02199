"""Our own studies: where the certificate works, and what defences cost."""
