"""Networks: settings that build modules, and what can be read off a module's structure."""
