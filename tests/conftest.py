"""Settings of the whole suite: one thread per worker, and one Hypothesis profile."""

import torch
from hypothesis import HealthCheck, settings

# Workers run side by side and their tensors are small.
torch.set_num_threads(1)

# Every machine draws the same examples, and none fails because it is slow: there is no deadline and no check on the
# time that examples take to draw. Examples share the fixtures of their test, which write a new file each time.
# To look for new counterexamples, run with --hypothesis-profile=explore.
settings.register_profile(
    "exhume",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("explore", settings.get_profile("exhume"), derandomize=False)
settings.load_profile("exhume")
