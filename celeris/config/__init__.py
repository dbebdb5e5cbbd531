"""What Hydra is told and what it must refuse: overrides, schema, resolvers, and its errors in one sentence."""
