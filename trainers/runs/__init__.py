"""A run of training from a configuration: settings, plan, refusals, and putting it together."""
